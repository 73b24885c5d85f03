// go-control-plane's SnapshotCache: one snapshot for all nodes.
package main

import (
	"context"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"xdsprism/bench/common"
)

type everybody struct{}

func (everybody) ID(*corev3.Node) string { return "all" }

func main() {
	options := common.Parse()
	snapshots := cache.NewSnapshotCache(false, everybody{}, nil)
	resources := make([]types.Resource, options.Resources)
	for number := range resources {
		resources[number] = common.Assignment(common.Name(number), 0, options.Size)
	}
	publish := func(version int) error {
		listed := map[string][]types.Resource{common.EDS: resources}
		snapshot, err := cache.NewSnapshot(strconv.Itoa(version), listed)
		if err != nil {
			return err
		}
		return snapshots.SetSnapshot(context.Background(), "all", snapshot)
	}
	if err := publish(0); err != nil {
		panic(err)
	}
	turn := common.NewTurn(options.Resources)
	gRPC := grpc.NewServer(options.Secure()...)
	discovery.RegisterAggregatedDiscoveryServiceServer(gRPC, server.NewServer(context.Background(), snapshots, nil))
	common.Serve(gRPC, func(count, version int) error {
		for range count {
			number := turn.Next()
			resources[number] = common.Assignment(common.Name(number), version, options.Size)
		}
		return publish(version)
	})
}
