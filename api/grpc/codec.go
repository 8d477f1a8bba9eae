package grpc

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec is the JSON of the API. Answers have the names of the proto file and show fields that are
// not set. Requests may use either spelling of a name; a field that is not known is refused.
type jsonCodec struct{}

var _ connect.Codec = jsonCodec{}

// WithJSON makes a handler or client speak the API's JSON.
func WithJSON() connect.Option { return connect.WithCodec(jsonCodec{}) }

// Name implements connect.Codec.
func (jsonCodec) Name() string { return "json" }

// Marshal implements connect.Codec.
func (jsonCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
}

// Unmarshal implements connect.Codec.
func (jsonCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", message)
	}
	return protojson.Unmarshal(data, m)
}
