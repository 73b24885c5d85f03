// A control plane on go-control-plane: SotW and delta ADS, v3, with a snapshot for each env that nodes have in their metadata.
// Prints `ready PORT`, then obeys one command per line of stdin and answers each with `ok` or `error REASON`. Ends with stdin.
//
//	cluster NAME SECONDS    a cluster with this connect_timeout, whose endpoints come by EDS
//	endpoint CLUSTER PORT   its one endpoint
//	route NAME CLUSTER      a route configuration that sends everything to the cluster
//	listener NAME           an API listener that takes the route configuration of the same name by RDS
//	service NAME            the same with what gRPC insists on
//	gateway NAME            the same for Envoy, on a free port
//	delete KIND NAME        KIND is one of the words above
//	in ENV COMMAND          one of the above for nodes of this env, who see nothing else; the first before they come
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
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// everybody is the group of those who have no group of their own.
const everybody = "*"

var typeURLs = map[string]resource.Type{
	"cluster":  resource.ClusterType,
	"endpoint": resource.EndpointType,
	"route":    resource.RouteType,
	"listener": resource.ListenerType,
	"service":  resource.ListenerType,
	"gateway":  resource.ListenerType,
}

type contents map[resource.Type]map[string]types.Resource

// groups are the contents by env; nodes are told apart while commands are obeyed.
type groups struct {
	lock  sync.Mutex
	byEnv map[string]contents
}

// ID gives all nodes of a group the same snapshot.
func (known *groups) ID(node *corev3.Node) string {
	known.lock.Lock()
	defer known.lock.Unlock()
	env := node.GetMetadata().GetFields()["env"].GetStringValue()
	if known.byEnv[env] == nil {
		return everybody
	}
	return env
}

func (known *groups) of(env string) contents {
	known.lock.Lock()
	defer known.lock.Unlock()
	if known.byEnv[env] == nil {
		known.byEnv[env] = contents{}
		for _, typeURL := range typeURLs {
			known.byEnv[env][typeURL] = map[string]types.Resource{}
		}
	}
	return known.byEnv[env]
}

type controlPlane struct {
	snapshots cache.SnapshotCache
	groups    *groups
	version   int
}

func newControlPlane() *controlPlane {
	known := &groups{byEnv: map[string]contents{}}
	known.of(everybody)
	// Not in its "ADS mode", where it answers only requests that name everything there is.
	return &controlPlane{snapshots: cache.NewSnapshotCache(false, known, nil), groups: known}
}

// obey carries out one command.
func (plane *controlPlane) obey(line string) error {
	words := strings.Fields(line)
	if len(words) == 1 && words[0] == "publish" {
		return plane.publish()
	}
	env := everybody
	if len(words) > 2 && words[0] == "in" {
		env, words = words[1], words[2:]
	}
	resources := plane.groups.of(env)
	switch {
	case len(words) == 3 && words[0] == "delete" && typeURLs[words[1]] != "":
		delete(resources[typeURLs[words[1]]], words[2])
		return nil
	case len(words) >= 2 && typeURLs[words[0]] != "":
		made, err := build(words[0], words[1], words[2:])
		if err == nil {
			resources[typeURLs[words[0]]][words[1]] = made
		}
		return err
	}
	return fmt.Errorf("no such command: %q", line)
}

func (plane *controlPlane) publish() error {
	plane.version++
	for env, resources := range plane.groups.byEnv {
		listed := map[resource.Type][]types.Resource{}
		for typeURL, byName := range resources {
			listed[typeURL] = []types.Resource{}
			for _, each := range byName {
				listed[typeURL] = append(listed[typeURL], each)
			}
		}
		snapshot, err := cache.NewSnapshot(strconv.Itoa(plane.version), listed)
		if err != nil {
			return err
		}
		if err := plane.snapshots.SetSnapshot(context.Background(), env, snapshot); err != nil {
			return err
		}
	}
	return nil
}

func build(kind, name string, rest []string) (types.Resource, error) {
	if typeURLs[kind] == resource.ListenerType && len(rest) == 0 {
		return listener(kind, name)
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
	host := &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: socketAddress(port)},
	}}
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints:         []*endpointv3.LbEndpoint{host},
			Locality:            &corev3.Locality{Region: "here"},
			LoadBalancingWeight: wrapperspb.UInt32(1),
		}},
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

func listener(kind, name string) (types.Resource, error) {
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix: name,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{RouteConfigName: name, ConfigSource: ads()},
		},
	}
	if kind != "listener" {
		router, err := anypb.New(&routerv3.Router{})
		if err != nil {
			return nil, err
		}
		last := &hcmv3.HttpFilter{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router},
		}
		manager.HttpFilters = []*hcmv3.HttpFilter{last}
	}
	connections, err := anypb.New(manager)
	if err != nil {
		return nil, err
	}
	if kind != "gateway" {
		return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: connections}}, nil
	}
	filter := &listenerv3.Filter{
		Name:       "envoy.filters.network.http_connection_manager",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: connections},
	}
	return &listenerv3.Listener{
		Name:         name,
		Address:      socketAddress(0),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{filter}}},
	}, nil
}

func socketAddress(port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       "127.0.0.1",
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
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
