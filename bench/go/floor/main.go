// grpc-go and nothing else: every stream is sent the same bytes, which are made once, and what it says is read and dropped.
// This is what transport alone costs there; it is no server that anybody could use.
package main

import (
	"strconv"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsprism/bench/common"
)

type floor struct {
	options *common.Options
	turn    *common.Turn
	lock    sync.Mutex
	streams map[chan []byte]bool // by whether it has the state of the world
	latest  [2][]byte            // of all resources: delta, SotW
}

func main() {
	options := common.Parse()
	made := &floor{options: options, turn: common.NewTurn(options.Resources), streams: map[chan []byte]bool{}}
	everything := make([]int, options.Resources)
	for number := range everything {
		everything[number] = number
	}
	made.latest = made.encode(everything, 0)
	secure := append(options.Secure(), grpc.ForceServerCodecV2(common.Raw{}), grpc.UnknownServiceHandler(made.serve))
	common.Serve(grpc.NewServer(secure...), made.bump)
}

// encode makes the responses with these resources, delta and SotW.
func (made *floor) encode(numbers []int, version int) [2][]byte {
	text := strconv.Itoa(version)
	delta := &discovery.DeltaDiscoveryResponse{SystemVersionInfo: text, Nonce: text, TypeUrl: common.EDS}
	sotw := &discovery.DiscoveryResponse{VersionInfo: text, Nonce: text, TypeUrl: common.EDS}
	for _, number := range numbers {
		name := common.Name(number)
		packed, err := anypb.New(common.Assignment(name, version, made.options.Size))
		if err != nil {
			panic(err)
		}
		delta.Resources = append(delta.Resources, &discovery.Resource{Name: name, Version: text, Resource: packed})
		sotw.Resources = append(sotw.Resources, packed)
	}
	return [2][]byte{marshal(delta), marshal(sotw)}
}

func marshal(message proto.Message) []byte {
	bytes, err := proto.Marshal(message)
	if err != nil {
		panic(err)
	}
	return bytes
}

func (made *floor) bump(count, version int) error {
	numbers := make([]int, count)
	for each := range numbers {
		numbers[each] = made.turn.Next()
	}
	changed := made.encode(numbers, version)
	made.lock.Lock()
	defer made.lock.Unlock()
	for stream, sotw := range made.streams {
		if sotw {
			stream <- changed[1]
		} else {
			stream <- changed[0]
		}
	}
	return nil
}

func (made *floor) serve(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	sotw := strings.HasSuffix(method, "/StreamAggregatedResources")
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for stream.RecvMsg(&request) == nil {
		}
	}()
	return made.feed(stream, sotw, ended)
}

func (made *floor) feed(stream grpc.ServerStream, sotw bool, ended <-chan struct{}) error {
	news := make(chan []byte, 64)
	made.lock.Lock()
	made.streams[news] = sotw
	first := made.latest[0]
	if sotw {
		first = made.latest[1]
	}
	made.lock.Unlock()
	defer func() {
		made.lock.Lock()
		delete(made.streams, news)
		made.lock.Unlock()
	}()
	for bytes := first; ; {
		if err := stream.SendMsg(bytes); err != nil {
			return err
		}
		select {
		case bytes = <-news:
		case <-ended:
			return nil
		}
	}
}
