package bounds

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// The part that a Body returns of a body with too many values is never valid JSON.
func TestBody_EndsAtTooManyValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[1,2]`: `[1,2]`, `[1,2,3]`: `[1,2,`, `{"a,b":[{}]}`: `{"a,b":[{`, `["\",\\",1]`: `["\",\\",1]`, `[]` + `,,,`: `[],,`, `"\`: `"\`,
	} {
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			b := &Body{ReadCloser: io.NopCloser(r), most: 2}
			got, err := io.ReadAll(b)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
			require.Equal(t, want != text, b.HasTooManyValues())
		}
	}
}
