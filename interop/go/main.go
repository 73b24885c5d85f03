// Calls `xds:///svc` for ever and prints one line of JSON per call: {"method", "reply", "error"}.
// The control plane and the node's metadata come from GRPC_XDS_BOOTSTRAP_CONFIG, as for any gRPC program.
// Usage: client TARGET METHOD...   Each METHOD is called in turn, as /echo.Echo/METHOD with raw bytes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/xds"
)

const (
	pause    = 50 * time.Millisecond
	deadline = 2 * time.Second
)

type outcome struct {
	Method string  `json:"method"`
	Reply  *string `json:"reply"`
	Error  *string `json:"error"`
}

// rawCodec passes bytes through, so that no generated message types are needed.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "raw" }
func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(body []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), body...)
	return nil
}

func call(channel *grpc.ClientConn, method string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	request, response := []byte("hello"), []byte{}
	err := channel.Invoke(ctx, "/echo.Echo/"+method, &request, &response, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		text := err.Error()
		return outcome{Method: method, Error: &text}
	}
	text := string(response)
	return outcome{Method: method, Reply: &text}
}

func main() {
	target, methods := os.Args[1], os.Args[2:]
	channel, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	for turn := 0; ; turn++ {
		line, err := json.Marshal(call(channel, methods[turn%len(methods)]))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(line))
		time.Sleep(pause)
	}
}
