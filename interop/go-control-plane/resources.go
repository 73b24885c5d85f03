package main

import (
	"fmt"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var typeURLs = map[string]resource.Type{
	"cluster":  resource.ClusterType,
	"endpoint": resource.EndpointType,
	"route":    resource.RouteType,
	"listener": resource.ListenerType,
	"service":  resource.ListenerType,
	"gateway":  resource.ListenerType,
}

// publishingOrder has what others refer to first.
var publishingOrder = []resource.Type{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType}

// contents are resources by type and name.
type contents map[resource.Type]map[string]types.Resource

func newContents() contents {
	made := contents{}
	for _, typeURL := range typeURLs {
		made[typeURL] = map[string]types.Resource{}
	}
	return made
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
