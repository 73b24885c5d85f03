// Package common is what the programs of the bench share.
package common

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// Raw passes messages through as the bytes that they are.
type Raw struct{}

// Marshal takes a []byte.
func (Raw) Marshal(message any) (mem.BufferSlice, error) {
	bytes, ok := message.([]byte)
	if !ok {
		return nil, fmt.Errorf("not bytes: %T", message)
	}
	return mem.BufferSlice{mem.SliceBuffer(bytes)}, nil
}

// Unmarshal takes a *[]byte, whose room it uses again.
func (Raw) Unmarshal(received mem.BufferSlice, message any) error {
	bytes, ok := message.(*[]byte)
	if !ok {
		return fmt.Errorf("no place for bytes: %T", message)
	}
	size := received.Len()
	if cap(*bytes) < size {
		*bytes = make([]byte, size)
	}
	*bytes = (*bytes)[:size]
	received.CopyTo(*bytes)
	return nil
}

// Name is that of protobuf, for these are its bytes.
func (Raw) Name() string { return "proto" }
