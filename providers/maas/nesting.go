package maas

import "errors"

// maxDepth bounds how deep the arrays and objects of one answer may nest. MAAS
// nests nine deep (a machine in a list, its interfaces, links, subnets, VLANs).
// The decoder below gomaasclient reads what it is given once for each level, so
// an answer that is some hundred levels deep would keep a call busy long past
// its deadline: no context ends a decoder.
const maxDepth = 32

var errTooDeep = errors.New("the answer is nested too deep")

// nesting follows the brackets of an answer that arrives in pieces. It decodes
// nothing: whatever reads the answer afterwards is what must be protected.
type nesting struct {
	depth    int
	inText   bool
	escaped  bool
	element  int64 // bytes since the last element of the outermost list began
	elements int64 // bytes that one element may have; 0 = as many as the answer
}

// follow takes the next piece. It returns errTooDeep or errTooBig once the
// answer, or one element of its outermost list, is over the bounds.
func (n *nesting) follow(piece []byte) error {
	for _, c := range piece {
		n.element++
		switch {
		case n.escaped:
			n.escaped = false
		case n.inText:
			n.escaped, n.inText = c == '\\', c != '"'
		case c == '"':
			n.inText = true
		case c == '[' || c == '{':
			n.depth++
		case c == ']' || c == '}':
			n.depth--
		case c == ',' && n.depth == 1:
			n.element = 0
		}
		if n.depth > maxDepth {
			return errTooDeep
		}
		if n.elements > 0 && n.element > n.elements {
			return errTooBig
		}
	}
	return nil
}

// checkNesting checks an answer that is in memory.
func checkNesting(data []byte) error {
	var n nesting
	return n.follow(data)
}
