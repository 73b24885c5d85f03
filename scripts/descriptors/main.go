// Descriptors writes every proto file that the modules in packages.go register, as one FileDescriptorSet, to stdout.
//
// Files come in the order of their names, so that the same modules give the same bytes; Go keeps no source info.
package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

func main() {
	var set descriptorpb.FileDescriptorSet
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
		return true
	})
	slices.SortFunc(set.File, func(one, other *descriptorpb.FileDescriptorProto) int {
		return cmp.Compare(one.GetName(), other.GetName())
	})
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(&set)
	if err == nil {
		_, err = os.Stdout.Write(encoded)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
