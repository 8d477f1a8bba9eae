package redfishsim

import (
	"net/http"
	"strings"
	"time"
)

const (
	tasksPath    = root + "/TaskService/Tasks"
	monitorsPath = root + "/TaskService/TaskMonitors"
	taskRuns     = 2 * time.Second // virtual
	maxTasks     = 100
)

// task is the record of an action answered with 202. Its effect has begun when
// it is made.
type task struct {
	id    string
	start time.Time
}

func (t *task) monitor() string { return monitorsPath + "/" + t.id }

func (s *Server) newTask() *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	t := &task{id: itoa(s.nextID), start: s.now()}
	s.tasks = append(s.tasks, t)
	if len(s.tasks) > maxTasks {
		s.tasks = s.tasks[1:]
	}
	return t
}

func (s *Server) taskDone(t *task) bool { return s.now().Sub(t.start) >= taskRuns }

func (s *Server) taskObject(t *task) obj {
	o := resource(tasksPath+"/"+t.id, "Task.v1_6_0.Task", t.id, "Task "+t.id)
	o["TaskMonitor"], o["StartTime"], o["Messages"] = t.monitor(), stamp(t.start), []any{}
	o["TaskState"], o["TaskStatus"], o["PercentComplete"] = "Running", "OK", 50
	if s.taskDone(t) {
		o["TaskState"], o["PercentComplete"], o["EndTime"] = "Completed", 100, stamp(t.start.Add(taskRuns))
	}
	return o
}

func (s *Server) taskNodes(t map[string]*node) {
	add(t, root+"/TaskService", func() obj {
		o := resource(root+"/TaskService", "TaskService.v1_2_0.TaskService", "TaskService", "Task Service")
		o["ServiceEnabled"], o["Tasks"], o["DateTime"] = true, link(tasksPath), stamp(s.now())
		return o
	})
	addCollection(t, tasksPath, "TaskCollection", "Tasks", func() []string {
		s.mu.Lock()
		defer s.mu.Unlock()
		var ids []string
		for _, x := range s.tasks {
			ids = append(ids, x.id)
		}
		return ids
	})
}

// taskNode is a task or its monitor; the monitor answers 202 while it runs and
// 204 after.
func (s *Server) taskNode(path string) *node {
	id, isTask := strings.CutPrefix(path, tasksPath+"/")
	if !isTask {
		var isMonitor bool
		if id, isMonitor = strings.CutPrefix(path, monitorsPath+"/"); !isMonitor {
			return nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.id == id {
			return &node{get: func() obj { return s.taskObject(t) }, poll: s.pollOf(t, isTask)}
		}
	}
	return nil
}

func (s *Server) pollOf(t *task, isTask bool) func() reply {
	if isTask {
		return nil
	}
	return func() reply {
		if s.taskDone(t) {
			return reply{status: http.StatusNoContent}
		}
		return reply{status: http.StatusAccepted, body: s.taskObject(t), header: map[string]string{"Location": t.monitor(), "Retry-After": "1"}}
	}
}
