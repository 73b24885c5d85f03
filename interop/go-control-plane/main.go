// A control plane on go-control-plane: SotW and delta ADS, v3, for every node the same snapshot.
// Prints `ready PORT`, then obeys one command per line of stdin and answers each with `ok` or `error REASON`. Ends with stdin.
//
//	cluster NAME SECONDS    a cluster with this connect_timeout, whose endpoints come by EDS
//	endpoint CLUSTER PORT   its one endpoint
//	route NAME CLUSTER      a route configuration that sends everything to the cluster
//	listener NAME           an API listener that takes the route configuration of the same name by RDS
//	delete KIND NAME        KIND is one of the words above
//	publish                 makes all of the above visible at once, as the next version
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

const group = "all"

var typeURLs = map[string]resource.Type{
	"cluster":  resource.ClusterType,
	"endpoint": resource.EndpointType,
	"route":    resource.RouteType,
	"listener": resource.ListenerType,
}

// everyNode gives all nodes the same snapshot.
type everyNode struct{}

func (everyNode) ID(*corev3.Node) string { return group }

type controlPlane struct {
	snapshots cache.SnapshotCache
	resources map[resource.Type]map[string]types.Resource
	version   int
}

func newControlPlane() *controlPlane {
	resources := map[resource.Type]map[string]types.Resource{}
	for _, typeURL := range typeURLs {
		resources[typeURL] = map[string]types.Resource{}
	}
	// Not in its "ADS mode", where it answers only requests that name everything there is.
	return &controlPlane{snapshots: cache.NewSnapshotCache(false, everyNode{}, nil), resources: resources}
}

// obey carries out one command.
func (plane *controlPlane) obey(line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 1 && words[0] == "publish":
		return plane.publish()
	case len(words) == 3 && words[0] == "delete" && typeURLs[words[1]] != "":
		delete(plane.resources[typeURLs[words[1]]], words[2])
		return nil
	case len(words) >= 2 && typeURLs[words[0]] != "":
		made, err := build(words[0], words[1], words[2:])
		if err == nil {
			plane.resources[typeURLs[words[0]]][words[1]] = made
		}
		return err
	}
	return fmt.Errorf("no such command: %q", line)
}

func (plane *controlPlane) publish() error {
	plane.version++
	contents := map[resource.Type][]types.Resource{}
	for typeURL, byName := range plane.resources {
		contents[typeURL] = []types.Resource{}
		for _, each := range byName {
			contents[typeURL] = append(contents[typeURL], each)
		}
	}
	snapshot, err := cache.NewSnapshot(strconv.Itoa(plane.version), contents)
	if err != nil {
		return err
	}
	return plane.snapshots.SetSnapshot(context.Background(), group, snapshot)
}

func build(kind, name string, rest []string) (types.Resource, error) {
	if kind == "listener" && len(rest) == 0 {
		return listener(name)
	}
	if len(rest) != 1 {
		return nil, fmt.Errorf("%s takes another number of words", kind)
	}
	if kind == "route" {
		return route(name, rest[0]), nil
	}
	number, err := strconv.Atoi(rest[0])
	if err != nil {
		return nil, err
	}
	if kind == "cluster" {
		return cluster(name, time.Duration(number)*time.Second), nil
	}
	return endpoint(name, uint32(number)), nil
}

func cluster(name string, connectTimeout time.Duration) types.Resource {
	return &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(connectTimeout),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
	}
}

func endpoint(cluster string, port uint32) types.Resource {
	address := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       "127.0.0.1",
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
	host := &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: address},
	}}
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints:   []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{host}}},
	}
}

func route(name, cluster string) types.Resource {
	everything := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}
	target := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}
	return &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    "all",
			Domains: []string{"*"},
			Routes:  []*routev3.Route{{Match: everything, Action: &routev3.Route_Route{Route: target}}},
		}},
	}
}

func listener(name string) (types.Resource, error) {
	connections, err := anypb.New(&hcmv3.HttpConnectionManager{
		StatPrefix: name,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{RouteConfigName: name, ConfigSource: ads()},
		},
	})
	if err != nil {
		return nil, err
	}
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: connections}}, nil
}

func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

func main() {
	plane := newControlPlane()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	transport := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(transport, server.NewServer(context.Background(), plane.snapshots, nil))
	go func() { log.Fatal(transport.Serve(socket)) }()

	fmt.Println("ready", socket.Addr().(*net.TCPAddr).Port)
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		if err := plane.obey(commands.Text()); err != nil {
			fmt.Println("error", err)
		} else {
			fmt.Println("ok")
		}
	}
}
