package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/slipway-cloud/slipway/test/runenv"
)

// documentClient makes calls by descriptors that are compiled from the text of the document. It
// knows no field that Slipway has added.
type documentClient struct {
	t     *testing.T
	conn  *grpc.ClientConn
	file  protoreflect.FileDescriptor
	token string
}

func newDocumentClient(t *testing.T, server, token string) *documentClient {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"../../proto/testdata/contract"}})}
	files, err := compiler.Compile(t.Context(), "slipway/v1/contract.proto")
	require.NoError(t, err)
	conn, err := grpc.NewClient(strings.TrimPrefix(server, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &documentClient{t, conn, files[0], token}
}

// request returns a method, its path, its message from JSON, and the context of the call.
func (c *documentClient) request(service, method, body string) (protoreflect.MethodDescriptor, string, proto.Message, context.Context) {
	c.t.Helper()
	found := c.file.Services().ByName(protoreflect.Name(service)).Methods().ByName(protoreflect.Name(method))
	in := dynamicpb.NewMessage(found.Input())
	require.NoError(c.t, protojson.Unmarshal([]byte(body), in))
	ctx := metadata.AppendToOutgoingContext(c.t.Context(), "authorization", "Bearer "+c.token)
	return found, "/slipway.v1." + service + "/" + method, in, ctx
}

// fields returns a message as JSON shows it.
func (c *documentClient) fields(m proto.Message) (out map[string]any) {
	c.t.Helper()
	raw, err := protojson.Marshal(m)
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(raw, &out))
	return out
}

func (c *documentClient) callOnce(service, method, body string) map[string]any {
	c.t.Helper()
	found, path, in, ctx := c.request(service, method, body)
	ctx, cancel := context.WithTimeout(ctx, runenv.Patience(30*time.Second))
	defer cancel()
	out := dynamicpb.NewMessage(found.Output())
	require.NoError(c.t, c.conn.Invoke(ctx, path, in, out), path)
	return c.fields(out)
}

// stream begins a stream of the server. next waits for a message; it returns nil at the end.
func (c *documentClient) stream(service, method, body string) (next func() map[string]any) {
	c.t.Helper()
	found, path, in, ctx := c.request(service, method, body)
	ctx, cancel := context.WithTimeout(ctx, runenv.Patience(3*time.Minute))
	c.t.Cleanup(cancel)
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	require.NoError(c.t, err)
	require.NoError(c.t, s.SendMsg(in))
	require.NoError(c.t, s.CloseSend())
	return func() map[string]any {
		c.t.Helper()
		out := dynamicpb.NewMessage(found.Output())
		if err := s.RecvMsg(out); !errors.Is(err, io.EOF) {
			require.NoError(c.t, err, path)
			return c.fields(out)
		}
		return nil
	}
}
