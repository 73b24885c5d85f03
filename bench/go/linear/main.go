// go-control-plane's LinearCache: resources of one type, the same for all nodes.
package main

import (
	"context"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"xdsprism/bench/common"
)

func main() {
	options := common.Parse()
	first := map[string]types.Resource{}
	for number := range options.Resources {
		name := common.Name(number)
		first[name] = common.Assignment(name, 0, options.Size)
	}
	linear := cache.NewLinearCache(common.EDS, cache.WithInitialResources(first))
	turn := common.NewTurn(options.Resources)
	gRPC := grpc.NewServer(options.Secure()...)
	discovery.RegisterAggregatedDiscoveryServiceServer(gRPC, server.NewServer(context.Background(), linear, nil))
	common.Serve(gRPC, func(count, version int) error {
		changed := map[string]types.Resource{}
		for range count {
			name := common.Name(turn.Next())
			changed[name] = common.Assignment(name, version, options.Size)
		}
		return linear.UpdateResources(changed, nil)
	})
}
