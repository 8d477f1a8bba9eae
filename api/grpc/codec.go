package grpc

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-cloud/slipway/api/op"
)

// jsonCodec is the JSON encoding of the API. Answers use the field names of the proto file and
// include fields that are not set. Requests may also use the lowerCamelCase names. An unknown field
// is an error.
type jsonCodec struct{}

var _ connect.Codec = jsonCodec{}

// WithJSON makes a handler or client use the JSON encoding of the API.
func WithJSON() connect.Option { return connect.WithCodec(jsonCodec{}) }

// Name implements connect.Codec.
func (jsonCodec) Name() string { return "json" }

// Marshal implements connect.Codec.
func (c jsonCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends a message to a buffer that connect uses again.
func (c jsonCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	return appendMessage(dst, message, c.Name(), protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.MarshalAppend)
}

// Unmarshal implements connect.Codec.
func (jsonCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", message)
	}
	return protojson.Unmarshal(data, m)
}

// protoCodec is the binary encoding.
type protoCodec struct{}

var _ connect.Codec = protoCodec{}

// Name implements connect.Codec.
func (protoCodec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (c protoCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends a message to a buffer that connect uses again.
func (c protoCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	return appendMessage(dst, message, c.Name(), proto.MarshalOptions{}.MarshalAppend)
}

// Unmarshal implements connect.Codec.
func (protoCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", message)
	}
	return proto.Unmarshal(data, m)
}

// frame is a message that many streams send. Each codec encodes it once for all of them. form tells
// apart messages of the same event that differ between readers.
type frame struct {
	event   *op.Event
	message proto.Message
	form    string
}

func appendMessage(dst []byte, message any, codec string, marshal func([]byte, proto.Message) ([]byte, error)) ([]byte, error) {
	switch m := message.(type) {
	case frame:
		text, err := op.Shared(m.event, codec+m.form, func() ([]byte, error) { return marshal(nil, m.message) })
		return append(dst, text...), err
	case proto.Message:
		return marshal(dst, m)
	}
	return nil, fmt.Errorf("%T is no message", message)
}
