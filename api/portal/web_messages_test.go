package portal_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestSource_KnowsMessagesOfMachines compares the types of the portal with the messages of the gRPC
// API: a field that was removed or renamed there fails here, and so does a call that does not
// exist.
func TestSource_KnowsMessagesOfMachines(t *testing.T) {
	t.Parallel()
	files := sourceFiles(t)
	source := string(files["src/api/machines.ts"])
	types := regexp.MustCompile(`(?s)export interface (\w+) \{\n(.*?)\n\}`).FindAllStringSubmatch(source, -1)
	require.Len(t, types, strings.Count(source, "export interface "), "a type is not read")
	for _, found := range types {
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("slipway.v1." + found[1]))
		require.NoError(t, err, "the portal reads %s, which the API does not have", found[1])
		message, ok := descriptor.(protoreflect.MessageDescriptor)
		require.True(t, ok, found[1])
		fields := regexp.MustCompile(`(?m)^  (\w+)\??: (.+);$`).FindAllStringSubmatch(found[2], -1)
		require.Len(t, fields, strings.Count(found[2], ";"), "a field of %s is not read", found[1])
		for _, f := range fields {
			field := message.Fields().ByTextName(f[1])
			require.NotNil(t, field, "the portal reads %s of %s, which the API does not have", f[1], found[1])
			require.Equal(t, strings.HasSuffix(f[2], "[]"), field.IsList(), "%s of %s", f[1], found[1])
			require.Equal(t, f[2] == "number", field.Kind() == protoreflect.Int32Kind, "%s of %s: 64-bit numbers are texts in JSON", f[1], found[1])
		}
	}
	asked := 0
	for path, data := range files {
		for _, m := range regexp.MustCompile(`(?:ask|readStream)<\w+>\("(\w+/\w+)"`).FindAllSubmatch(data, -1) {
			asked++
			_, known := calls()["/slipway.v1."+string(m[1])]
			require.True(t, known, "%s calls %s, which the API does not have", path, m[1])
		}
	}
	require.Greater(t, asked, 7)
}
