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

// documentLimit bounds one document that is streamed, however slowly it is read.
const documentLimit = time.Hour

// StreamDocument answers with one JSON object of any size. write writes its members. The object ends
// with the member complete, which is true. When write fails the connection is broken instead, so that
// no reader takes a part for the whole. write asks AccessAgain before it reads more. A document
// counts as a stream: a reader or a project with too many is answered 429.
func (a *API) StreamDocument(c huma.Context, write func(context.Context, *Document) error) {
	a.streamText(c, "application/json", func(ctx context.Context, out *bufio.Writer) error {
		d := &Document{out: out}
		if err := write(ctx, d); err != nil {
			return err
		}
		return d.end()
	})
}

// StreamCSV is StreamDocument for comma-separated rows. write ends with a row that says that the
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

// streamText answers with what write writes, or breaks the connection when write fails.
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

// memberProject returns the project whose members' streams the request counts to, "" for an
// operator's.
func memberProject(ctx context.Context) string {
	if access := ProjectAccessOf(ctx); !access.Operator {
		return access.Project
	}
	return ""
}

// documentBuffer is how much of a document is sent at a time. A reader that takes longer for it than
// streamWrite is given up.
const documentBuffer = 32 << 10

type deadlineWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (d deadlineWriter) Write(p []byte) (int, error) {
	_ = d.control.SetWriteDeadline(time.Now().Add(streamWrite)) // a writer without deadlines has its own
	return d.w.Write(p)
}

// Document is a JSON object that is written member by member, each on a line of its own, as are the
// elements of its lists.
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
		_, _ = d.out.WriteString(before) // the next write returns its error again
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

// end completes the document and sends what is left of it.
func (d *Document) end() error {
	if err := d.Member("complete", true); err != nil {
		return err
	}
	_, _ = d.out.WriteString("}\n") // Flush returns its error again
	return d.out.Flush()
}
