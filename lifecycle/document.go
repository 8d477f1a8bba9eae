package lifecycle

import (
	"fmt"
	"strings"
)

// Document renders a lifecycle as Markdown with a Mermaid diagram. The pages in docs/states are
// made of it, and a test fails when one is stale.
func (m Machine[S]) Document() string {
	var b strings.Builder
	title := m.Resource
	if m.Lifecycle != "" {
		title += ", lifecycle " + m.Lifecycle
	}
	fmt.Fprintf(&b, "# States: %s\n\nGenerated from package lifecycle. Do not edit; `make generate` writes it.\n\n", title)
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, s := range m.Initial {
		fmt.Fprintf(&b, "    [*] --> %s\n", s)
	}
	for _, t := range m.Transitions {
		for _, f := range t.From {
			fmt.Fprintf(&b, "    %s --> %s: %s\n", f, t.To, t.Name)
		}
	}
	for _, s := range m.States {
		if s.Terminal {
			fmt.Fprintf(&b, "    %s --> [*]\n", s.State)
		}
	}
	b.WriteString("```\n\n| state | meaning | kind |\n|---|---|---|\n")
	for _, s := range m.States {
		kind := "resting"
		switch {
		case s.Terminal:
			kind = "terminal"
		case s.Transitional:
			kind = "transitional: has an owning job and a deadline"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.State, s.Doc, kind)
	}
	b.WriteString("\n| transition | from | to | may be caused by | needs | meaning |\n|---|---|---|---|---|---|\n")
	for _, t := range m.Transitions {
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s | %s |\n",
			t.Name, codes(t.From), t.To, plain(t.Owners), plain(t.Needs), t.Doc)
	}
	return b.String()
}

// DocumentActions renders the action matrix and the failure classes.
func DocumentActions() string {
	var b strings.Builder
	b.WriteString("# Operator actions on a job\n\nGenerated from package lifecycle. Do not edit; `make generate` writes it.\n\n| action |")
	for _, s := range Job.States {
		fmt.Fprintf(&b, " %s |", s.State)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(Job.States)) + "\n")
	for _, a := range Actions {
		fmt.Fprintf(&b, "| `%s` |", a)
		for _, s := range Job.States {
			b.WriteString(" " + cell(a, s.State) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\nWhat each does:\n\n")
	for _, a := range Actions {
		fmt.Fprintf(&b, "- `%s`: %s\n", a, a.Doc())
	}
	b.WriteString("\n## Failure classes\n\n| class | parks in | tries | recommended | what to do |\n|---|---|---|---|---|\n")
	for _, f := range failures {
		fmt.Fprintf(&b, "| `%s` | %s | %d | `%s` | %s |\n", f.Class, f.ParkStatus(), f.AutoAttempts, f.Recommended, f.Next)
	}
	return b.String()
}

func cell(a Action, s JobStatus) string {
	waiting, idle := Decide(a, s, JobFacts{WaitingOutside: true}), Decide(a, s, JobFacts{})
	switch {
	case idle.Allowed:
		return string(idle.Effect)
	case waiting.Allowed:
		return string(waiting.Effect) + " while the stage waits on the outside"
	}
	return "refuse"
}

func codes[T ~string](list []T) string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, "`"+string(v)+"`")
	}
	return strings.Join(out, ", ")
}

func plain[T ~string](list []T) string {
	if len(list) == 0 {
		return "–"
	}
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, string(v))
	}
	return strings.Join(out, ", ")
}
