package common

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// EDS is the type of all resources here.
const EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// Name of a resource by its number.
func Name(number int) string { return fmt.Sprintf("r%06d", number) }

// Assignment makes the endpoints of a cluster, with the version in the first one's hostname.
func Assignment(name string, version, size int) *endpointv3.ClusterLoadAssignment {
	hosts := make([]*endpointv3.LbEndpoint, max(1, (size-30)/48))
	for number := range hosts {
		hosts[number] = host(number, version)
	}
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: name,
		Endpoints:   []*endpointv3.LocalityLbEndpoints{{LbEndpoints: hosts}},
	}
}

func host(number, version int) *endpointv3.LbEndpoint {
	hostname := "host-0000000000"
	if number == 0 {
		hostname = fmt.Sprintf("upd-%010d", version)
	}
	address := &corev3.SocketAddress{
		Address:       fmt.Sprintf("10.0.%d.%d", number/250, number%250+1),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
	}
	return &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Hostname: hostname,
			Address:  &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: address}},
		}},
		LoadBalancingWeight: wrapperspb.UInt32(uint32(1 + number%7)),
	}
}

// Turn gives the numbers of the resources that change next, one after the other.
type Turn struct{ next, resources int }

// NewTurn begins with the first.
func NewTurn(resources int) *Turn { return &Turn{resources: resources} }

// Next is whose turn it is.
func (turn *Turn) Next() int {
	number := turn.next
	turn.next = (turn.next + 1) % turn.resources
	return number
}
