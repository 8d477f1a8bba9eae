package redfishsim

import (
	"strings"
	"time"
)

const maxLog = 200 // entries kept; the oldest go first

type logEntry struct {
	id       int
	at       time.Time
	severity string
	text     string
}

func (s *Server) log(severity, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logSeq++
	s.logs = append(s.logs, logEntry{s.logSeq, s.now(), severity, text})
	if len(s.logs) > maxLog {
		s.logs = s.logs[len(s.logs)-maxLog:]
	}
}

// AddLogEntry writes an entry, for example a hardware fault, into every log.
// Severity is OK, Warning or Critical.
func (s *Server) AddLogEntry(severity, text string) { s.log(severity, text) }

// ClearLog empties every log, as an operator of the BMC or root on the machine does. The next entry
// has the first id again.
func (s *Server) ClearLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs, s.logSeq = nil, 0
}

// logPaths are all log services.
func (s *Server) logPaths() []string {
	return append(prefixed(s.systemPath()+"/LogServices", s.p.SystemLogs), prefixed(s.managerPath()+"/LogServices", s.p.ManagerLogs)...)
}

func (s *Server) logNodes(t map[string]*node) {
	for base, ids := range map[string][]string{s.systemPath(): s.p.SystemLogs, s.managerPath(): s.p.ManagerLogs} {
		if len(ids) > 0 {
			addCollection(t, base+"/LogServices", "LogServiceCollection", "Log Services", func() []string { return ids })
		}
	}
	for _, path := range s.logPaths() {
		id := path[strings.LastIndexByte(path, '/')+1:]
		add(t, path, func() obj {
			o := resource(path, "LogService.v1_4_0.LogService", id, id)
			o["Entries"], o["MaxNumberOfRecords"], o["OverWritePolicy"], o["ServiceEnabled"] = link(path+"/Entries"), maxLog, "WrapsWhenFull", true
			o["DateTime"] = stamp(s.now())
			o["Actions"] = obj{"#LogService.ClearLog": obj{"target": path + "/Actions/LogService.ClearLog"}}
			return o
		})
		add(t, path+"/Entries", func() obj { return s.entries(path + "/Entries") })
		s.addAction(t, path+"/Actions/LogService.ClearLog", func(*call) reply {
			s.ClearLog()
			return s.done()
		})
	}
}

// entries lists the log, oldest first, with the entries inlined as BMCs do.
func (s *Server) entries(path string) obj {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := collection(path, "LogEntryCollection", "Log Entries")
	members := make([]any, 0, len(s.logs))
	for _, e := range s.logs {
		members = append(members, e.object(path))
	}
	o["Members"], o["Members@odata.count"] = members, len(members)
	return o
}

func (e logEntry) object(base string) obj {
	id := itoa(e.id)
	o := resource(base+"/"+id, "LogEntry.v1_11_0.LogEntry", id, "Log Entry "+id)
	o["EntryType"], o["Severity"], o["Message"], o["Created"] = "Event", e.severity, e.text, stamp(e.at)
	return o
}

func (s *Server) logEntryNode(path string) *node {
	for _, p := range s.logPaths() {
		id, ok := strings.CutPrefix(path, p+"/Entries/")
		if !ok {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.logs {
			if itoa(e.id) == id {
				return &node{get: func() obj { return e.object(p + "/Entries") }}
			}
		}
	}
	return nil
}
