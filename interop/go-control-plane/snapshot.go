package main

import (
	"context"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// groups are the envs that have a snapshot; nodes are told apart while commands are obeyed.
type groups struct {
	lock  sync.Mutex
	known map[string]bool
}

// ID gives all nodes of a group the same snapshot.
func (groups *groups) ID(node *corev3.Node) string {
	groups.lock.Lock()
	defer groups.lock.Unlock()
	env := node.GetMetadata().GetFields()["env"].GetStringValue()
	if !groups.known[env] {
		return everybody
	}
	return env
}

func (groups *groups) add(env string) {
	groups.lock.Lock()
	defer groups.lock.Unlock()
	groups.known[env] = true
}

// snapshotPlane is on go-control-plane's SnapshotCache.
type snapshotPlane struct {
	snapshots cache.SnapshotCache
	groups    *groups
}

func newSnapshotPlane() plane {
	known := &groups{known: map[string]bool{everybody: true}}
	// Not in its "ADS mode", where it answers only requests that name everything there is.
	return &snapshotPlane{snapshots: cache.NewSnapshotCache(false, known, nil), groups: known}
}

func (plane *snapshotPlane) service() discovery.AggregatedDiscoveryServiceServer {
	return server.NewServer(context.Background(), plane.snapshots, nil)
}

func (plane *snapshotPlane) publish(version string, byEnv map[string]contents) error {
	for env, resources := range byEnv {
		listed := map[resource.Type][]types.Resource{}
		for typeURL, byName := range resources {
			listed[typeURL] = []types.Resource{}
			for _, each := range byName {
				listed[typeURL] = append(listed[typeURL], each)
			}
		}
		snapshot, err := cache.NewSnapshot(version, listed)
		if err != nil {
			return err
		}
		if err := plane.snapshots.SetSnapshot(context.Background(), env, snapshot); err != nil {
			return err
		}
		plane.groups.add(env)
	}
	return nil
}
