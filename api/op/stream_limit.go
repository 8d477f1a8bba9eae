package op

import (
	"fmt"
	"sync"

	"github.com/slipway-cloud/slipway/api/problem"
)

// The maximum number of streams that one process serves to one principal, and to the members of one
// project. Each stream costs memory, and reads the database by itself while it is behind.
const (
	maxReaderStreams  = 20
	maxProjectStreams = 50
	streamRetry       = 30 // seconds
)

// streamCounter counts the streams that are open in this process.
type streamCounter struct {
	mu                 sync.Mutex
	readers, byProject map[string]int
}

func newStreamCounter() *streamCounter {
	return &streamCounter{readers: map[string]int{}, byProject: map[string]int{}}
}

// open counts a stream until leave is called. It returns a problem when the reader or the project
// already has the maximum number of streams. project is "" for streams of operators.
func (c *streamCounter) open(reader, project string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readers[reader] >= maxReaderStreams {
		return nil, problem.New(problem.TooManyRequests, fmt.Sprintf("you have %d streams open, as many as you may have; close one first", maxReaderStreams)).After(streamRetry)
	}
	if project != "" && c.byProject[project] >= maxProjectStreams {
		return nil, problem.New(problem.TooManyRequests, fmt.Sprintf("the project has %d streams open, as many as it may have; close one first", maxProjectStreams)).After(streamRetry)
	}
	c.readers[reader]++
	if project != "" {
		c.byProject[project]++
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		decrease(c.readers, reader)
		if project != "" {
			decrease(c.byProject, project)
		}
	}, nil
}

// decrease removes a count that becomes 0, so that the map does not grow with every reader.
func decrease(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
