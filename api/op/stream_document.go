package op

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
)

// documentLimit is the longest time in which a client may read one streamed document.
const documentLimit = time.Hour

// StreamDocument answers with one JSON object of any size. write writes the members of the object.
// The object ends with the member "complete": true. If write fails, StreamDocument breaks the
// connection, so that no client takes a part for the whole. write must call AccessAgain before each
// further read of the database. A document counts as a stream: a reader or a project with too many
// streams gets the status 429.
func (a *API) StreamDocument(c huma.Context, write func(context.Context, *Document) error) {
	a.streamText(c, "application/json", func(ctx context.Context, out *bufio.Writer) error {
		d := &Document{out: out}
		if err := write(ctx, d); err != nil {
			return err
		}
		return d.end()
	})
}

// StreamCSV is StreamDocument for comma-separated rows. The last row from write must say that the
// rows are complete.
func (a *API) StreamCSV(c huma.Context, write func(context.Context, *csv.Writer) error) {
	a.streamText(c, "text/csv; charset=utf-8", func(ctx context.Context, out *bufio.Writer) error {
		rows := csv.NewWriter(out)
		if err := write(ctx, rows); err != nil {
			return err
		}
		rows.Flush()
		if err := rows.Error(); err != nil {
			return err
		}
		return out.Flush()
	})
}

// streamText answers with the text from write. It breaks the connection if write fails.
func (a *API) streamText(c huma.Context, contentType string, write func(context.Context, *bufio.Writer) error) {
	r, w := humachi.Unwrap(c)
	closed, err := a.streams.open(PrincipalOf(c.Context()).ID, memberProject(c.Context()))
	if err != nil {
		a.WriteError(w, r, err)
		return
	}
	defer closed()
	ctx, stop := context.WithTimeout(c.Context(), documentLimit)
	defer stop()
	w.Header().Set("Content-Type", contentType)
	err = write(ctx, bufio.NewWriterSize(deadlineWriter{w, http.NewResponseController(w)}, documentBuffer))
	if err == nil {
		return
	}
	if c.Context().Err() == nil {
		a.log.WarnContext(ctx, "a streamed document was broken off", "request", Route(ctx), "request_id", RequestID(ctx), "error", err)
	}
	panic(http.ErrAbortHandler)
}

// memberProject returns the project to whose streams the request counts. It is "" for operators.
func memberProject(ctx context.Context) string {
	if access := ProjectAccessOf(ctx); !access.Operator {
		return access.Project
	}
	return ""
}

// documentBuffer is how many bytes of a document are sent at a time. The client must read them
// within streamWrite.
const documentBuffer = 32 << 10

type deadlineWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (d deadlineWriter) Write(p []byte) (int, error) {
	_ = d.control.SetWriteDeadline(time.Now().Add(streamWrite)) // a writer that supports none has its own limit
	return d.w.Write(p)
}

// Document is a JSON object that is written member by member. Each member, and each element of a
// list, is on its own line.
type Document struct {
	out     *bufio.Writer
	members int
}

func (d *Document) name(name string) error {
	before := ",\n"
	if d.members == 0 {
		before = "{"
	}
	d.members++
	_, err := fmt.Fprintf(d.out, "%s%q:", before, name)
	return err
}

// Member writes one member.
func (d *Document) Member(name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("member %s of a document: %w", name, err)
	}
	if err := d.name(name); err != nil {
		return err
	}
	_, err = d.out.Write(raw)
	return err
}

// List writes a member that is a list. write calls add for each element.
func (d *Document) List(name string, write func(add func(any) error) error) error {
	if err := d.name(name); err != nil {
		return err
	}
	before := "[\n"
	err := write(func(element any) error {
		raw, err := json.Marshal(element)
		if err != nil {
			return fmt.Errorf("an element of %s of a document: %w", name, err)
		}
		_, _ = d.out.WriteString(before) // the next write returns the same error
		before = ",\n"
		_, err = d.out.Write(raw)
		return err
	})
	if err != nil {
		return err
	}
	if before == "[\n" {
		_, err = d.out.WriteString("[]")
	} else {
		_, err = d.out.WriteString("]")
	}
	return err
}

// end completes the document and sends the rest of it.
func (d *Document) end() error {
	if err := d.Member("complete", true); err != nil {
		return err
	}
	_, _ = d.out.WriteString("}\n") // Flush returns the same error
	return d.out.Flush()
}
