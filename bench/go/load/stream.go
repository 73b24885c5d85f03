package main

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
)

const (
	service = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	roomy   = 1 << 16 // bytes that a stream may keep for its next message
)

var mark = []byte("upd-")

// stream is one ADS stream. One goroutine receives and answers; another one may ask for more.
type stream struct {
	fleet      *fleet
	connection *grpc.ClientConn
	number     int
	class      int // -1: of none
	opened     grpc.ClientStream
	sending    sync.Mutex
	seen       atomic.Int64 // the newest version
	messages   atomic.Int64
	resources  atomic.Int64
	removed    atomic.Int64
	backwards  atomic.Int64
}

// run until the end of all; `begun` is called once, when the first resources are there or never will be.
func (one *stream) run(life context.Context, begun func()) {
	defer one.fleet.running.Done()
	once := sync.OnceFunc(begun)
	defer once()
	if err := one.open(life); err != nil {
		one.fleet.fail(err)
		return
	}
	var message []byte
	for {
		if err := one.opened.RecvMsg(&message); err != nil {
			one.fleet.fail(err)
			return
		}
		if err := one.take(message); err != nil {
			one.fleet.fail(err)
			return
		}
		if one.resources.Load() >= one.fleet.plan.First {
			once()
		}
		if cap(message) > roomy {
			message = nil
		}
	}
}

func (one *stream) open(life context.Context) error {
	method := service + "DeltaAggregatedResources"
	if one.fleet.plan.Sotw {
		method = service + "StreamAggregatedResources"
	}
	description := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	opened, err := one.connection.NewStream(life, description, method, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	one.opened = opened
	return one.say(subscription(one.fleet.plan, one.number, one.class))
}

func (one *stream) say(request []byte) error {
	one.sending.Lock()
	defer one.sending.Unlock()
	return one.opened.SendMsg(request)
}

// take counts a message and ACKs it. Who has what was expected says so after that.
func (one *stream) take(message []byte) error {
	read, err := parse(message, one.fleet.plan.Sotw)
	if err != nil {
		return err
	}
	newest := one.seen.Load()
	before := newest
	for _, resource := range read.resources {
		version, err := versionOf(resource)
		if err != nil {
			return err
		}
		newest = max(newest, version)
	}
	if len(read.resources) > 0 && newest == before && before > 0 {
		one.backwards.Add(1)
	}
	one.messages.Add(1)
	one.resources.Add(int64(len(read.resources)))
	one.removed.Add(int64(read.removed))
	one.seen.Store(newest)
	if err := one.say(acknowledgement(one.fleet.plan, read)); err != nil {
		return err
	}
	one.reach(before, newest)
	return nil
}

func (one *stream) reach(before, now int64) {
	goal := one.fleet.goal.Load()
	if goal == nil || now < goal.version || before >= goal.version || (goal.class >= 0 && goal.class != one.class) {
		return
	}
	if goal.remaining.Add(-1) == 0 {
		close(goal.reached)
	}
}

// versionOf finds the mark, which is near the beginning.
func versionOf(resource []byte) (int64, error) {
	at := bytes.Index(resource, mark)
	if at < 0 || len(resource) < at+14 {
		return 0, errors.New("a resource without a version in it")
	}
	return strconv.ParseInt(string(resource[at+4:at+14]), 10, 64)
}
