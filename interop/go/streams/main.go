// Opens calls on one channel as it is told, and prints what comes of them.
//
// Usage: streams ADDRESS WINDOW   WINDOW is that of streams and of the connection, in bytes; 0: what gRPC likes best.
//
// Orders are lines of JSON on stdin; a call has a number, and bytes are in base64:
//
//	{"do": "open", "call": 1, "method": "/p.S/M", "deadline": 2.5, "held": true}   both optional; held: nothing is read yet
//	{"do": "send", "call": 1, "body": "..."}
//	{"do": "read" | "finish" | "cancel", "call": 1}
//
// What happens is printed: {"call": 1, "message": "..."}, and at its end {"call": 1, "status": 0, "details": ""}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// soon: by default, the waits between two tries grow to two minutes.
var soon = backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1, MaxDelay: 200 * time.Millisecond}

type order struct {
	Do       string
	Call     int
	Method   string
	Deadline float64
	Held     bool
	Body     []byte
}

type message struct {
	Call    int    `json:"call"`
	Message []byte `json:"message"`
}

type end struct {
	Call    int    `json:"call"`
	Status  uint32 `json:"status"`
	Details string `json:"details"`
}

// rawCodec passes bytes through, so that no generated message types are needed.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "raw" }
func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(body []byte, v any) error {
	*v.(*[]byte) = append([]byte{}, body...)
	return nil
}

var (
	printing sync.Mutex
	printer  = json.NewEncoder(os.Stdout)
)

func report(what any) {
	printing.Lock()
	defer printing.Unlock()
	if err := printer.Encode(what); err != nil {
		os.Exit(1) // nobody listens any more
	}
}

type call struct {
	number  int
	cancel  context.CancelFunc
	reading chan struct{} // closed once it may be read
	outbox  chan []byte
}

// open returns at once: a call may have to wait until the server takes one more.
func open(channel *grpc.ClientConn, asked order) *call {
	ctx, cancel := context.WithCancel(context.Background())
	if asked.Deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(asked.Deadline*float64(time.Second)))
	}
	opened := &call{asked.Call, cancel, make(chan struct{}), make(chan []byte, 64)}
	if !asked.Held {
		close(opened.reading)
	}
	go opened.run(ctx, channel, asked.Method)
	return opened
}

func (c *call) run(ctx context.Context, channel *grpc.ClientConn, method string) {
	defer c.cancel()
	stream, err := channel.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err == nil {
		go c.write(ctx, stream)
		select {
		case <-c.reading:
		case <-ctx.Done():
		}
		err = c.read(stream)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	how := status.Convert(err)
	report(end{c.number, uint32(how.Code()), how.Message()})
}

func (c *call) write(ctx context.Context, stream grpc.ClientStream) {
	for {
		select {
		case body, more := <-c.outbox:
			if !more {
				stream.CloseSend()
				return
			}
			if stream.SendMsg(&body) != nil {
				return // the reader learns why
			}
		case <-ctx.Done():
			return
		}
	}
}

func (c *call) read(stream grpc.ClientStream) error {
	for {
		var body []byte
		if err := stream.RecvMsg(&body); err != nil {
			return err
		}
		report(message{c.number, body})
	}
}

func dial(address string, window int) *grpc.ClientConn {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodec(rawCodec{}), grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: 5 * time.Second}),
	}
	if window > 0 {
		options = append(options,
			grpc.WithInitialWindowSize(int32(window)), grpc.WithInitialConnWindowSize(int32(window)))
	}
	channel, err := grpc.NewClient(address, options...)
	if err != nil {
		log.Fatal(err)
	}
	return channel
}

func main() {
	window, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	channel := dial(os.Args[1], window)
	calls := map[int]*call{}
	orders := json.NewDecoder(os.Stdin)
	for {
		var asked order
		if err := orders.Decode(&asked); err != nil {
			return // stdin is closed: the test is over
		}
		switch asked.Do {
		case "open":
			calls[asked.Call] = open(channel, asked)
		case "send":
			calls[asked.Call].outbox <- asked.Body
		case "read":
			close(calls[asked.Call].reading)
		case "finish":
			close(calls[asked.Call].outbox)
		case "cancel":
			calls[asked.Call].cancel()
		default:
			log.Fatalf("no such order: %q", asked.Do)
		}
	}
}
