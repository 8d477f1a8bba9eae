package e2e_test

import (
	"regexp"
	"strings"
	"sync"
)

// failures are the requests that the shared server answered with an error of its own.
var failures failedRequests

// failedRequests takes the log of a server, and keeps the newest lines about requests that failed
// inside it. A test that such an answer fails prints its line.
type failedRequests struct {
	mutex sync.Mutex
	lines []string
}

const keptFailures = 500

func (f *failedRequests) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "request failed") {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		f.lines = append(f.lines, string(line))
		f.lines = f.lines[max(0, len(f.lines)-keptFailures):]
	}
	return len(line), nil
}

var requestID = regexp.MustCompile(`req_[0-9a-f-]{36}`)

// linesAbout returns the lines about the request that a message names; "" where there is none.
func (f *failedRequests) linesAbout(message string) string {
	id := requestID.FindString(message)
	if id == "" {
		return ""
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var found strings.Builder
	for _, line := range f.lines {
		if strings.Contains(line, id) {
			found.WriteString(line)
		}
	}
	return found.String()
}
