package main

import (
	"fmt"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// watchedPlane has no snapshots: streams subscribe to single resources, or to all of a type, and each change goes to
// those that did. This is how diderot is built, of which proxies may not have the module, and what it does, it does:
//
//   - whoever subscribes is sent what there is, whatever it says that it has; in delta also that there is nothing;
//   - nonces and versions that a client returns mean nothing;
//   - in SotW the response has all that was ever sent of clusters and listeners, and of other types the news;
//   - a wildcard of which there is nothing is not answered.
type watchedPlane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	lock     sync.Mutex
	shown    contents
	versions map[resource.Type]map[string]string
	streams  map[*watching]bool
}

// watching is one stream: what it subscribes to, and what waits to be sent on it.
type watching struct {
	names   map[resource.Type]map[string]bool
	pending map[resource.Type]map[string]*discovery.Resource // nil: it does not exist
	woken   chan struct{}
}

func newWatchedPlane() plane {
	made := &watchedPlane{shown: newContents(), versions: map[resource.Type]map[string]string{}, streams: map[*watching]bool{}}
	for typeURL := range made.shown {
		made.versions[typeURL] = map[string]string{}
	}
	return made
}

func (plane *watchedPlane) service() discovery.AggregatedDiscoveryServiceServer { return plane }

func (plane *watchedPlane) publish(version string, byEnv map[string]contents) error {
	plane.lock.Lock()
	defer plane.lock.Unlock()
	for _, typeURL := range publishingOrder {
		byName := byEnv[everybody][typeURL]
		for name, each := range byName {
			if plane.shown[typeURL][name] != each { // what a command did not touch is the same object
				plane.shown[typeURL][name], plane.versions[typeURL][name] = each, version
				plane.notify(typeURL, name)
			}
		}
		for name := range plane.shown[typeURL] {
			if byName[name] == nil {
				delete(plane.shown[typeURL], name)
				plane.notify(typeURL, name)
			}
		}
	}
	return nil
}

func (plane *watchedPlane) notify(typeURL resource.Type, name string) {
	for stream := range plane.streams {
		if stream.names[typeURL][name] || stream.names[typeURL]["*"] {
			plane.queue(stream, typeURL, name)
		}
	}
}

func (plane *watchedPlane) queue(stream *watching, typeURL resource.Type, name string) {
	if stream.pending[typeURL] == nil {
		stream.pending[typeURL] = map[string]*discovery.Resource{}
	}
	stream.pending[typeURL][name] = plane.read(typeURL, name)
	select {
	case stream.woken <- struct{}{}:
	default:
	}
}

func (plane *watchedPlane) read(typeURL resource.Type, name string) *discovery.Resource {
	var message types.Resource = plane.shown[typeURL][name]
	if message == nil {
		return nil
	}
	packed, err := anypb.New(message)
	if err != nil {
		panic(err)
	}
	return &discovery.Resource{Name: name, Version: plane.versions[typeURL][name], Resource: packed}
}

func (plane *watchedPlane) join() *watching {
	plane.lock.Lock()
	defer plane.lock.Unlock()
	stream := &watching{
		names:   map[resource.Type]map[string]bool{},
		pending: map[resource.Type]map[string]*discovery.Resource{},
		woken:   make(chan struct{}, 1),
	}
	plane.streams[stream] = true
	return stream
}

func (plane *watchedPlane) leave(stream *watching) {
	plane.lock.Lock()
	defer plane.lock.Unlock()
	delete(plane.streams, stream)
}

// subscribe sends what there is, also to who has subscribed before.
func (plane *watchedPlane) subscribe(stream *watching, typeURL resource.Type, name string) {
	stream.names[typeURL][name] = true
	if name != "*" {
		plane.queue(stream, typeURL, name)
		return
	}
	for each := range plane.shown[typeURL] {
		plane.queue(stream, typeURL, each)
	}
}

func (plane *watchedPlane) hearDelta(stream *watching, request *discovery.DeltaDiscoveryRequest) {
	plane.lock.Lock()
	defer plane.lock.Unlock()
	typeURL, subscribe := request.GetTypeUrl(), request.GetResourceNamesSubscribe()
	if stream.names[typeURL] == nil {
		stream.names[typeURL] = map[string]bool{}
		if len(subscribe) == 0 {
			subscribe = []string{"*"}
		}
	}
	for _, name := range subscribe {
		plane.subscribe(stream, typeURL, name)
	}
	for _, name := range request.GetResourceNamesUnsubscribe() {
		delete(stream.names[typeURL], name)
	}
}

func (plane *watchedPlane) hearSotw(stream *watching, request *discovery.DiscoveryRequest) {
	plane.lock.Lock()
	defer plane.lock.Unlock()
	typeURL, wanted := request.GetTypeUrl(), map[string]bool{}
	for _, name := range request.GetResourceNames() {
		wanted[name] = true
	}
	before := stream.names[typeURL]
	if len(wanted) == 0 && (before == nil || before["*"]) {
		wanted["*"] = true
	}
	stream.names[typeURL] = map[string]bool{}
	for name := range wanted {
		if before[name] {
			stream.names[typeURL][name] = true
		} else {
			plane.subscribe(stream, typeURL, name)
		}
	}
}

func (plane *watchedPlane) take(stream *watching) map[resource.Type]map[string]*discovery.Resource {
	plane.lock.Lock()
	defer plane.lock.Unlock()
	taken := stream.pending
	stream.pending = map[resource.Type]map[string]*discovery.Resource{}
	return taken
}

// talk reads in one goroutine and writes in this one, until either is over.
func (plane *watchedPlane) talk(hear func(*watching) error, say func(resource.Type, map[string]*discovery.Resource) error) error {
	stream := plane.join()
	defer plane.leave(stream)
	over := make(chan error, 1)
	go func() {
		for {
			if err := hear(stream); err != nil {
				over <- err
				return
			}
		}
	}()
	for {
		select {
		case err := <-over:
			return err
		case <-stream.woken:
			for typeURL, news := range plane.take(stream) {
				if err := say(typeURL, news); err != nil {
					return err
				}
			}
		}
	}
}

func (plane *watchedPlane) DeltaAggregatedResources(calls discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	count := 0
	return plane.talk(func(stream *watching) error {
		request, err := calls.Recv()
		if err == nil {
			plane.hearDelta(stream, request)
		}
		return err
	}, func(typeURL resource.Type, news map[string]*discovery.Resource) error {
		count++
		response := &discovery.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: fmt.Sprint(count)}
		for name, each := range news {
			if each != nil {
				response.Resources = append(response.Resources, each)
			} else {
				response.RemovedResources = append(response.RemovedResources, name)
			}
		}
		return calls.Send(response)
	})
}

func (plane *watchedPlane) StreamAggregatedResources(calls discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	count := 0
	sent := map[resource.Type]map[string]*discovery.Resource{}
	return plane.talk(func(stream *watching) error {
		request, err := calls.Recv()
		if err == nil {
			plane.hearSotw(stream, request)
		}
		return err
	}, func(typeURL resource.Type, news map[string]*discovery.Resource) error {
		isWhole := typeURL == resource.ClusterType || typeURL == resource.ListenerType
		if sent[typeURL] == nil || !isWhole {
			sent[typeURL] = map[string]*discovery.Resource{}
		}
		for name, each := range news {
			if each != nil {
				sent[typeURL][name] = each
			} else {
				delete(sent[typeURL], name)
			}
		}
		if !isWhole && len(sent[typeURL]) == 0 {
			return nil
		}
		count++
		response := &discovery.DiscoveryResponse{TypeUrl: typeURL, Nonce: fmt.Sprint(count), VersionInfo: fmt.Sprint(started, ".", count)}
		for _, each := range sent[typeURL] {
			response.Resources = append(response.Resources, each.GetResource())
		}
		return calls.Send(response)
	})
}
