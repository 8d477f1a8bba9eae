package secretscan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	// maxLine is how much of a line is searched at a time.
	maxLine = 1 << 20
	// overlap is how much of it is searched again with what follows.
	overlap = 16 << 10
)

// Log searches a text line by line. Place names the text. A secret of several lines is found by the
// lines that Expand takes out of it.
func (s *Searcher) Log(place string, r io.Reader) error {
	lines := bufio.NewReaderSize(r, maxLine)
	var rest []byte // the end of the part before, of the same line
	for number := 1; ; {
		part, err := lines.ReadSlice('\n')
		s.Counts.LogBytes += len(part)
		if len(part) > 0 {
			s.Search(fmt.Sprintf("%s, line %d", place, number), append(rest, part...))
		}
		rest = nil
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			rest = append(rest, part[max(0, len(part)-overlap):]...)
		case errors.Is(err, io.EOF):
			if len(part) > 0 {
				s.Counts.LogLines++
			}
			return nil
		case err != nil:
			return fmt.Errorf("search %s: %w", place, err)
		default:
			s.Counts.LogLines++
			number++
		}
	}
}
