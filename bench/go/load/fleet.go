package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"xdsprism/bench/common"
)

const patience = 5 * time.Minute // for the first resources of all

// plan says which streams to open.
type plan struct {
	Address     string   `json:"address"`
	Connections int      `json:"connections"`
	Streams     int      `json:"streams"` // on each connection
	Sotw        bool     `json:"sotw"`
	CA          string   `json:"ca"` // empty: no TLS
	Type        string   `json:"type"`
	Names       []string `json:"names"`   // empty: all there are
	First       int64    `json:"first"`   // how many resources each stream gets to begin with
	AtOnce      int      `json:"at_once"` // streams that wait for these at one time
	Classes     int      `json:"classes"` // of nodes, by `class` in their metadata; 0: no metadata
	Only        int      `json:"only"`    // the one class that is connected; -1: all
}

// goal is a version that is awaited.
type goal struct {
	version   int64
	class     int // -1: all
	remaining atomic.Int64
	reached   chan struct{}
}

// fleet is all streams. What they share is read by each of them for each message, so it is atomic or does not change.
type fleet struct {
	plan        plan
	connections []*grpc.ClientConn
	streams     []*stream
	added       int
	cancel      context.CancelFunc
	closing     atomic.Bool
	goal        atomic.Pointer[goal]
	running     sync.WaitGroup
	fault       atomic.Pointer[error]
}

// report is what came, all in all.
type report struct {
	Streams   int     `json:"streams"`
	Messages  int64   `json:"messages"`
	Resources int64   `json:"resources"`
	Removed   int64   `json:"removed"`
	Backwards int64   `json:"backwards"` // messages with a version that is older than what the stream had
	Oldest    int64   `json:"oldest"`    // the version of the stream that is furthest behind
	ByClass   []int64 `json:"by_class"`  // messages
	Sizes     []int   `json:"sizes"`     // streams
}

func (all *fleet) connect(plan plan) error {
	*all = fleet{plan: plan}
	secrets, err := trust(plan.CA)
	if err != nil {
		return err
	}
	var life context.Context
	life, all.cancel = context.WithCancel(context.Background())
	places := make(chan struct{}, max(1, plan.AtOnce))
	first := sync.WaitGroup{}
	for range plan.Connections {
		connection, err := grpc.NewClient(
			"passthrough:///"+plan.Address,
			grpc.WithTransportCredentials(secrets),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(common.Raw{}), grpc.MaxCallRecvMsgSize(1<<30)),
		)
		if err != nil {
			return err
		}
		all.connections = append(all.connections, connection)
		for range plan.Streams {
			made := all.add(connection)
			if made == nil {
				continue
			}
			places <- struct{}{}
			first.Add(1)
			all.running.Add(1)
			go made.run(life, func() { <-places; first.Done() })
		}
	}
	return all.begun(&first)
}

// add makes the next stream, or none if it is of a class that stays away: the others are where they would be with it.
func (all *fleet) add(connection *grpc.ClientConn) *stream {
	made := &stream{fleet: all, connection: connection, number: all.added, class: -1}
	all.added++
	if classes := all.plan.Classes; classes > 0 {
		made.class = made.number % classes
	}
	if all.plan.Only >= 0 && made.class != all.plan.Only {
		return nil
	}
	made.seen.Store(-1)
	all.streams = append(all.streams, made)
	return made
}

func (all *fleet) begun(first *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { first.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("not every stream has its first resources: %+v", all.report())
	}
}

func trust(file string) (credentials.TransportCredentials, error) {
	if file == "" {
		return insecure.NewCredentials(), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in the file")
	}
	return credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}), nil
}

func (all *fleet) expect(version int64, class int) {
	made := &goal{version: version, class: class, reached: make(chan struct{})}
	for _, each := range all.streams {
		if class < 0 || each.class == class {
			made.remaining.Add(1)
		}
	}
	all.goal.Store(made)
}

func (all *fleet) wait(most time.Duration) error {
	made := all.goal.Load()
	select {
	case <-made.reached:
		return nil
	case <-time.After(most):
		return fmt.Errorf("%d streams did not get version %d: %+v", made.remaining.Load(), made.version, all.report())
	}
}

func (all *fleet) subscribe(name string) error {
	for _, each := range all.streams {
		if err := each.say(also(all.plan, name)); err != nil {
			return err
		}
	}
	return nil
}

func (all *fleet) close() {
	all.closing.Store(true)
	all.cancel()
	for _, connection := range all.connections {
		_ = connection.Close()
	}
	all.running.Wait()
	all.connections, all.streams = nil, nil
}

// fail keeps the first thing that went wrong.
func (all *fleet) fail(err error) {
	if !all.closing.Load() {
		all.fault.CompareAndSwap(nil, &err)
	}
}

func (all *fleet) failed() error {
	if fault := all.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

func (all *fleet) report() report {
	made := report{Streams: len(all.streams), Oldest: -1}
	classes := max(1, all.plan.Classes)
	made.ByClass, made.Sizes = make([]int64, classes), make([]int, classes)
	for number, each := range all.streams {
		made.Messages += each.messages.Load()
		made.Resources += each.resources.Load()
		made.Removed += each.removed.Load()
		made.Backwards += each.backwards.Load()
		if seen := each.seen.Load(); number == 0 || seen < made.Oldest {
			made.Oldest = seen
		}
		made.ByClass[max(0, each.class)] += each.messages.Load()
		made.Sizes[max(0, each.class)]++
	}
	return made
}
