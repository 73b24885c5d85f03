package main

import (
	"context"
	"maps"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// linearPlane is on go-control-plane's LinearCache, one for each type, behind its MuxCache. All nodes get the same.
type linearPlane struct {
	caches map[resource.Type]*cache.LinearCache
	shown  contents
}

func newLinearPlane() plane {
	made := &linearPlane{caches: map[resource.Type]*cache.LinearCache{}, shown: newContents()}
	for typeURL := range made.shown {
		// Clients that come back name the version they have: another process must not use it for something else.
		made.caches[typeURL] = cache.NewLinearCache(typeURL, cache.WithVersionPrefix(started+"."))
	}
	return made
}

func (plane *linearPlane) service() discovery.AggregatedDiscoveryServiceServer {
	muxed := map[string]cache.Cache{}
	for typeURL, each := range plane.caches {
		muxed[typeURL] = each
	}
	return server.NewServer(context.Background(), &cache.MuxCache{
		Classify:      func(request *cache.Request) string { return request.GetTypeUrl() },
		ClassifyDelta: func(request *cache.DeltaRequest) string { return request.GetTypeUrl() },
		Caches:        muxed,
	}, nil)
}

func (plane *linearPlane) publish(_ string, byEnv map[string]contents) error {
	for _, typeURL := range publishingOrder {
		byName := byEnv[everybody][typeURL]
		changed := map[string]types.Resource{}
		for name, each := range byName {
			if plane.shown[typeURL][name] != each { // what a command did not touch is the same object
				changed[name] = each
			}
		}
		var gone []string
		for name := range plane.shown[typeURL] {
			if byName[name] == nil {
				gone = append(gone, name)
			}
		}
		plane.shown[typeURL] = maps.Clone(byName)
		if len(changed)+len(gone) == 0 {
			continue
		}
		if err := plane.caches[typeURL].UpdateResources(changed, gone); err != nil {
			return err
		}
	}
	return nil
}
