package stripesim

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// params are the parameters of a request, by their nested names such as
// line_items[0][price_data][currency].
type params struct {
	values url.Values
	read   map[string]bool // names that the endpoint knows
}

// maxRequest bounds the body of a request, in bytes.
const maxRequest = 1 << 20

// readParams reads the query of a GET and the form body of any other request.
func readParams(w http.ResponseWriter, r *http.Request) (params, *apiError) {
	p := params{values: r.URL.Query(), read: map[string]bool{}}
	if r.Method == http.MethodGet {
		return p, nil
	}
	if len(p.values) > 0 {
		return p, invalid("", "", "stripesim takes the parameters of a POST from its body alone.")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &tooBig):
		return p, &apiError{status: http.StatusRequestEntityTooLarge, kind: kindInvalid, message: "The request is too large."}
	case err != nil:
		return p, invalid("", "", "The body could not be read.")
	}
	if len(body) > 0 && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return p, invalid("", "", "Invalid request (check that your POST content type is application/x-www-form-urlencoded).")
	}
	if p.values, err = url.ParseQuery(string(body)); err != nil {
		return p, invalid("", "", "Invalid request (the body is no form).")
	}
	return p, nil
}

// text returns a parameter, "" when it is absent.
func (p params) text(name string) string {
	p.read[name] = true
	return p.values.Get(name)
}

// has reports whether the request names the parameter.
func (p params) has(name string) bool {
	p.read[name] = true
	return p.values.Has(name)
}

// integer returns a parameter that must be a whole number.
func (p params) integer(name string) (int64, bool, *apiError) {
	if !p.has(name) {
		return 0, false, nil
	}
	n, err := strconv.ParseInt(p.text(name), 10, 64)
	if err != nil {
		return 0, true, invalid("parameter_invalid_integer", name, "Invalid integer: %s", p.text(name))
	}
	return n, true, nil
}

// boolean returns a parameter that must be true or false.
func (p params) boolean(name string) (value, found bool, e *apiError) {
	switch t := p.text(name); t {
	case "true", "false":
		return t == "true", true, nil
	case "":
		return false, false, nil
	default:
		return false, true, invalid("", name, "Invalid boolean: %s", t)
	}
}

// list returns an array of texts, written as name[] or name[0], name[1] and so on.
func (p params) list(name string) []string {
	p.read[name+"[]"] = true
	out := slices.Clone(p.values[name+"[]"])
	for i := 0; ; i++ {
		item := name + "[" + strconv.Itoa(i) + "]"
		if !p.has(item) {
			return out
		}
		out = append(out, p.text(item))
	}
}

var hashEntry = regexp.MustCompile(`^\[([^\[\]]{1,40})\]$`)

// hash returns an object of texts, such as metadata.
func (p params) hash(name string) (map[string]string, *apiError) {
	out := map[string]string{}
	for full := range p.values {
		rest, found := strings.CutPrefix(full, name)
		if !found || !strings.HasPrefix(rest, "[") {
			continue
		}
		p.read[full] = true
		m := hashEntry.FindStringSubmatch(rest)
		if m == nil {
			return nil, invalid("", full, "Metadata keys must have 1 to 40 characters without brackets.")
		}
		if len(p.values.Get(full)) > 500 {
			return nil, invalid("", full, "Metadata values can have up to 500 characters.")
		}
		out[m[1]] = p.values.Get(full)
	}
	if len(out) > 50 {
		return nil, invalid("", name, "Metadata can have up to 50 keys.")
	}
	return out, nil
}

// unknown returns a refusal of a parameter that the endpoint has not read.
func (p params) unknown() *apiError {
	var names []string
	for name := range p.values {
		if !p.read[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return invalid("parameter_unknown", names[0], "Received unknown parameter: %s", names[0])
}

// required returns a text that must be there.
func (p params) required(name string) (string, *apiError) {
	if p.text(name) == "" {
		return "", invalid("parameter_missing", name, "Missing required param: %s.", name)
	}
	return p.text(name), nil
}

// oneOf returns a text that must be one of the simulated values; "" when it is absent.
func (p params) oneOf(name string, simulated ...string) (string, *apiError) {
	value := p.text(name)
	if value == "" || slices.Contains(simulated, value) {
		return value, nil
	}
	return "", notSimulated(name, name+"="+value)
}
