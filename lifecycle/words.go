package lifecycle

import "strings"

// OneOf names alternatives as people write them: "active, offline or
// quarantined". No alternative is "none".
func OneOf[T ~string](list []T) string {
	words := make([]string, 0, len(list))
	for _, one := range list {
		words = append(words, string(one))
	}
	switch n := len(words); n {
	case 0:
		return "none"
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
}
