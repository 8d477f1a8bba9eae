package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/test/runenv"
)

func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// Element is one element as assistive technology sees it.
type Element struct {
	Role, Name string
	Disabled   bool
	id         cdp.BackendNodeID
}

// axNode is what is read of a node of the accessibility tree. The protocol's own type refuses the
// properties that a newer browser adds.
type axNode struct {
	Ignored    bool              `json:"ignored"`
	Role       axValue           `json:"role"`
	Name       axValue           `json:"name"`
	Properties []axProperty      `json:"properties"`
	ID         cdp.BackendNodeID `json:"backendDOMNodeId"`
}

type axProperty struct {
	Name  string  `json:"name"`
	Value axValue `json:"value"`
}

type axValue struct {
	Value any `json:"value"`
}

func (v axValue) text() string {
	s, _ := v.Value.(string)
	return s
}

type axNodes struct {
	Nodes []axNode `json:"nodes"`
}

func toElement(n axNode) Element {
	e := Element{Role: n.Role.text(), Name: strings.TrimSpace(n.Name.text()), id: n.ID}
	for _, p := range n.Properties {
		if p.Name == "disabled" && p.Value.Value == true {
			e.Disabled = true
		}
	}
	return e
}

// Elements returns what has a role, in the order of the page. Hidden elements and those behind a
// modal dialog are not among it.
func (p *Page) Elements(role string) []Element {
	var out []Element
	_ = p.look(func(ctx context.Context) error {
		// Accessibility.queryAXTree would send less, but the page crashes when it is left
		// meanwhile.
		var tree axNodes
		err := cdp.Execute(ctx, accessibility.CommandGetFullAXTree, nil, &tree)
		for _, n := range tree.Nodes {
			if !n.Ignored && n.Role.text() == role {
				out = append(out, toElement(n))
			}
		}
		return err
	})
	return out
}

// firstLook is how long the browser may take to answer before it is asked again.
const firstLook = 500 * time.Millisecond

// look asks the browser about the page. Chromium never answers a question about a page that is
// being left, so that look asks again, and each time has twice the patience.
func (p *Page) look(question chromedp.ActionFunc) error {
	ctx, cancel := context.WithTimeout(p.ctx, runenv.Patience(patience))
	defer cancel()
	for limit := runenv.Patience(firstLook); ; limit *= 2 {
		once, done := context.WithTimeout(ctx, limit)
		err := chromedp.Run(once, question)
		late := once.Err() != nil
		done()
		if !late || ctx.Err() != nil {
			return err
		}
	}
}

// find returns the first element with the role whose name is name, or begins with it where it ends
// in "...".
func (p *Page) find(role, name string) (Element, bool) {
	begin, open := strings.CutSuffix(name, "...")
	for _, e := range p.Elements(role) {
		if e.Name == name || open && strings.HasPrefix(e.Name, begin) {
			return e, true
		}
	}
	return Element{}, false
}

// Has is true where an element with this role and name is there.
func (p *Page) Has(role, name string) bool {
	_, ok := p.find(role, name)
	return ok
}

// Find waits for an element with this role and name.
func (p *Page) Find(role, name string) Element {
	p.t.Helper()
	var e Element
	p.Await(fmt.Sprintf("a %s named %q", role, name), patience, func() (ok bool) {
		e, ok = p.find(role, name)
		return ok
	})
	return e
}

// Click clicks in the middle of an element, so that one that lies below another is not reached.
func (p *Page) Click(role, name string) {
	p.t.Helper()
	var x, y float64
	p.Await(fmt.Sprintf("a %s named %q that can be clicked", role, name), patience, func() bool {
		e, ok := p.find(role, name)
		if !ok || e.Disabled {
			return false
		}
		return p.look(func(ctx context.Context) (err error) {
			x, y, err = middleOf(ctx, e.id)
			return err
		}) == nil
	})
	// The answer to a click that leads to another page may be lost. A second click would act on
	// that page, so the test sees by what follows whether the click was one.
	if err := p.run(chromedp.MouseClickXY(x, y)); err != nil {
		require.ErrorIs(p.t, err, context.DeadlineExceeded, "click %s %q", role, name)
	}
}

func middleOf(ctx context.Context, id cdp.BackendNodeID) (x, y float64, err error) {
	if err := dom.ScrollIntoViewIfNeeded().WithBackendNodeID(id).Do(ctx); err != nil {
		return 0, 0, err
	}
	quads, err := dom.GetContentQuads().WithBackendNodeID(id).Do(ctx)
	if err != nil {
		return 0, 0, err
	}
	if len(quads) == 0 || len(quads[0]) != 8 {
		return 0, 0, fmt.Errorf("the element has no area")
	}
	q := quads[0]
	return (q[0] + q[2] + q[4] + q[6]) / 4, (q[1] + q[3] + q[5] + q[7]) / 4, nil
}

// Fill writes text into the field with this label.
func (p *Page) Fill(label, text string) {
	p.t.Helper()
	p.Focus("textbox", label)
	p.write(text)
}

// Focus gives an element the focus.
func (p *Page) Focus(role, name string) {
	p.t.Helper()
	e := p.Find(role, name)
	require.NoError(p.t, p.run(dom.Focus().WithBackendNodeID(e.id)), "focus %s %q", role, name)
}

// write replaces what the focused field holds.
func (p *Page) write(text string) {
	p.t.Helper()
	require.NoError(p.t, p.run(chromedp.KeyEvent("a", chromedp.KeyModifiers(input.ModifierCtrl)), input.InsertText(text)))
}

// Choose chooses the option with this text, or that begins with it, in the list with this label.
func (p *Page) Choose(label, option string) {
	p.t.Helper()
	var chosen bool
	p.Await(fmt.Sprintf("an option %q of %q", option, label), patience, func() bool {
		e, ok := p.find("combobox", label)
		if !ok {
			return false
		}
		return p.run(chromedp.ActionFunc(func(ctx context.Context) error {
			object, err := dom.ResolveNode().WithBackendNodeID(e.id).Do(ctx)
			if err != nil {
				return err
			}
			text, err := json.Marshal(option)
			if err != nil {
				return err
			}
			res, _, err := runtime.CallFunctionOn(chooseOption).WithObjectID(object.ObjectID).WithReturnByValue(true).
				WithArguments([]*runtime.CallArgument{{Value: text}}).Do(ctx)
			if err != nil {
				return err
			}
			return json.Unmarshal(res.Value, &chosen)
		})) == nil && chosen
	})
}

const chooseOption = `function (want) {
  const found = [...this.options].find((o) => o.text === want || o.value === want) ?? [...this.options].find((o) => o.text.startsWith(want));
  if (!found) return false;
  this.value = found.value;
  this.dispatchEvent(new Event("input", { bubbles: true }));
  this.dispatchEvent(new Event("change", { bubbles: true }));
  return true;
}`

// Press presses a key: kb.Tab, kb.Enter, or text.
func (p *Page) Press(keys string) {
	p.t.Helper()
	require.NoError(p.t, p.run(chromedp.KeyEvent(keys)))
}

// Focused returns the element that has the focus.
func (p *Page) Focused() Element {
	var out Element
	_ = p.look(func(ctx context.Context) error {
		object, _, err := runtime.Evaluate(`document.activeElement`).Do(ctx)
		if err != nil || object.ObjectID == "" {
			return err
		}
		var tree axNodes
		err = cdp.Execute(ctx, accessibility.CommandGetPartialAXTree, accessibility.GetPartialAXTree().WithObjectID(object.ObjectID).WithFetchRelatives(false), &tree)
		if err == nil && len(tree.Nodes) > 0 {
			out = toElement(tree.Nodes[0])
		}
		return err
	})
	return out
}

// AwaitFocus waits until the element with this role and name has the focus. A page moves the focus
// after it has shown what it moves it to.
func (p *Page) AwaitFocus(role, name string) {
	p.t.Helper()
	p.Await(fmt.Sprintf("the focus on the %s named %q", role, name), patience, func() bool {
		e := p.Focused()
		return e.Role == role && e.Name == name
	})
}

// tabLimit is more elements than a page lets the focus go through.
const tabLimit = 150

// TabTo presses the tab key until the element with this role and name has the focus.
func (p *Page) TabTo(role, name string) {
	p.t.Helper()
	begin, open := strings.CutSuffix(name, "...")
	var seen []string
	p.Find(role, name)
	for range tabLimit {
		p.Press(kb.Tab)
		e := p.Focused()
		if e.Role == role && (e.Name == name || open && strings.HasPrefix(e.Name, begin)) {
			return
		}
		seen = append(seen, e.Role+" "+e.Name)
	}
	require.FailNow(p.t, fmt.Sprintf("the tab key does not reach %s %q; it goes through:\n%s", role, name, strings.Join(seen, "\n")))
}

// Type goes to a field with the tab key and writes into it.
func (p *Page) Type(label, text string) {
	p.t.Helper()
	p.TabTo("textbox", label)
	p.write(text)
}

// typeAgain is after how many looks Pick types again. A browser forgets what was typed after a
// second without a key, so that one that is slow takes the middle of a word for its beginning.
const typeAgain = 30

// Pick goes to a list with the tab key and chooses an option by typing how it begins.
func (p *Page) Pick(label, option string) {
	p.t.Helper()
	p.TabTo("combobox", label)
	begin, err := json.Marshal(option)
	require.NoError(p.t, err)
	p.Await(fmt.Sprintf("an option %q of %q", option, label), patience, func() bool {
		return p.String(fmt.Sprintf(`String([...(document.activeElement.options ?? [])].some((o) => o.text.startsWith(%s)))`, begin)) == "true"
	})
	looks := 0
	p.Await(fmt.Sprintf("%q chosen in %q", option, label), patience, func() bool {
		if looks%typeAgain == 0 {
			p.Press(option)
		}
		looks++
		return strings.HasPrefix(p.String(`document.activeElement.selectedOptions?.[0]?.text ?? ""`), option)
	})
}

// PressOn goes to an element with the tab key and presses enter on it.
func (p *Page) PressOn(role, name string) {
	p.t.Helper()
	p.TabTo(role, name)
	p.Press(kb.Enter)
}
