// diderot's ADSServer over one cache of its own. A module by itself: it is built from a checkout, see the Makefile.
package main

import (
	"context"
	"strconv"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/linkedin/diderot"
	"github.com/linkedin/diderot/ads"
	"google.golang.org/grpc"

	"xdsprism/bench/common"
)

// Locator finds everything in the one cache.
type Locator struct {
	cache diderot.Cache[*endpointv3.ClusterLoadAssignment]
}

func (locator Locator) IsTypeSupported(_ context.Context, typeURL string) bool { return typeURL == common.EDS }

func (locator Locator) Subscribe(_ context.Context, _, name string, handler ads.RawSubscriptionHandler) func() {
	diderot.Subscribe(locator.cache, name, handler)
	return func() { diderot.Unsubscribe(locator.cache, name, handler) }
}

func (locator Locator) Resubscribe(_ context.Context, _, name string, handler ads.RawSubscriptionHandler) {
	diderot.Subscribe(locator.cache, name, handler)
}

func main() {
	options := common.Parse()
	cache := diderot.NewCache[*endpointv3.ClusterLoadAssignment]()
	for number := range options.Resources {
		name := common.Name(number)
		cache.Set(name, "0", common.Assignment(name, 0, options.Size), time.Time{})
	}
	turn := common.NewTurn(options.Resources)
	gRPC := grpc.NewServer(options.Secure()...)
	discovery.RegisterAggregatedDiscoveryServiceServer(gRPC, diderot.NewADSServer(Locator{cache}))
	common.Serve(gRPC, func(count, version int) error {
		for range count {
			name := common.Name(turn.Next())
			cache.Set(name, strconv.Itoa(version), common.Assignment(name, version, options.Size), time.Time{})
		}
		return nil
	})
}
