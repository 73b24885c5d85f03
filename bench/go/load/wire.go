package main

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// What of a response is looked at.
type read struct {
	version, typeURL, nonce []byte
	resources               [][]byte
	removed                 int
}

func parse(message []byte, sotw bool) (read, error) {
	found := read{}
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return found, protowire.ParseError(size)
		}
		message = message[size:]
		if kind != protowire.BytesType {
			size = protowire.ConsumeFieldValue(number, kind, message)
			if size < 0 {
				return found, protowire.ParseError(size)
			}
			message = message[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(message)
		if size < 0 {
			return found, protowire.ParseError(size)
		}
		message = message[size:]
		switch number {
		case 1:
			found.version = value
		case 2:
			found.resources = append(found.resources, value)
		case 4:
			found.typeURL = value
		case 5:
			found.nonce = value
		case 6: // delta only: in SotW it is who answers
			if !sotw {
				found.removed++
			}
		}
	}
	return found, nil
}

func put(message []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), value)
}

// node has an id of its own, and in its metadata its class and its number, which nothing depends on.
func node(number, class int) []byte {
	text := strconv.Itoa(number)
	made := put(nil, 1, []byte("n"+text))
	if class >= 0 {
		metadata := put(nil, 1, entry("class", "c"+strconv.Itoa(class)))
		made = put(made, 3, put(metadata, 1, entry("pod", "p"+text)))
	}
	return put(made, 6, []byte("bench"))
}

func entry(key, value string) []byte {
	return put(put(nil, 1, []byte(key)), 2, put(nil, 3, []byte(value)))
}

func subscription(plan plan, number, class int) []byte {
	if plan.Sotw {
		return named(put(put(nil, 2, node(number, class)), 4, []byte(plan.Type)), plan.Names)
	}
	made := put(put(nil, 1, node(number, class)), 2, []byte(plan.Type))
	if len(plan.Names) == 0 {
		return put(made, 3, []byte("*"))
	}
	return named(made, plan.Names)
}

// named adds the names: the field has the same number in both protocols.
func named(message []byte, names []string) []byte {
	for _, name := range names {
		message = put(message, 3, []byte(name))
	}
	return message
}

func also(plan plan, name string) []byte {
	return named(put(nil, 2, []byte(plan.Type)), []string{name})
}

func acknowledgement(plan plan, response read) []byte {
	if plan.Sotw {
		made := put(put(nil, 1, response.version), 4, response.typeURL)
		return put(named(made, plan.Names), 5, response.nonce)
	}
	return put(put(nil, 2, response.typeURL), 6, response.nonce)
}
