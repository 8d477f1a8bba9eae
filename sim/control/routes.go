package simcontrol

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// FaultScript is a Script, or a simulator that does more when a line is removed.
type FaultScript interface {
	AddFault(f Fault) (id int, err error)
	Faults() []Fault
	FaultNames() map[string]string
	ClearFaults(id int)
}

// Clock is the time of a simulator.
type Clock interface {
	Now() time.Time
	Speed() float64
	Step(d time.Duration)
}

// HandleView serves what f returns under path.
func HandleView(mux *http.ServeMux, path string, f func() any) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { Answer(w, f(), nil) })
}

// HandleAct serves an act under path: it decodes a JSON body into T and runs f.
func HandleAct[T any](mux *http.ServeMux, path string, f func(T) error) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var in T
		err := ReadJSON(w, r, &in)
		if err == nil {
			err = f(in)
		}
		Answer(w, map[string]bool{"done": true}, err)
	})
}

// HandleFaults serves the script of faults under /_sim/faults/ and the names of faults, with a line
// each, under /_sim/fault-names.
func HandleFaults(mux *http.ServeMux, script FaultScript) {
	HandleView(mux, "/_sim/fault-names", func() any { return script.FaultNames() })
	HandleView(mux, "/_sim/faults/{$}", func() any { return script.Faults() })
	mux.HandleFunc("POST /_sim/faults/{$}", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		err := ReadJSON(w, r, &f)
		var id int
		if err == nil {
			id, err = script.AddFault(f)
		}
		if err != nil {
			Answer(w, nil, err)
			return
		}
		Respond(w, http.StatusCreated, map[string]int{"id": id})
	})
	mux.HandleFunc("DELETE /_sim/faults/{$}", func(w http.ResponseWriter, _ *http.Request) {
		script.ClearFaults(0)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_sim/faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.Atoi(r.PathValue("id"))
		if err != nil || id < 1 {
			Answer(w, nil, errors.New("the id must be the number that adding the fault returned"))
			return
		}
		script.ClearFaults(id)
		w.WriteHeader(http.StatusNoContent)
	})
}

// HandleClock serves the clock under /_sim/clock; POST /_sim/clock/step?by=10m steps it.
func HandleClock(mux *http.ServeMux, c Clock) {
	view := func() any { return map[string]any{"now": c.Now(), "speed": c.Speed()} }
	HandleView(mux, "/_sim/clock", view)
	mux.HandleFunc("POST /_sim/clock/step", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.URL.Query().Get("by"))
		if err != nil || d <= 0 {
			Answer(w, nil, errors.New("by must be a duration, for example ?by=5m"))
			return
		}
		c.Step(d)
		Answer(w, view(), nil)
	})
}

// ValuesOf returns copies of the lines of a script.
func ValuesOf[F any](lines []*F) []F {
	out := make([]F, 0, len(lines))
	for _, f := range lines {
		out = append(out, *f)
	}
	return out
}
