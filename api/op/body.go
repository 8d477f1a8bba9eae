package op

import (
	"net/http"
	"strings"

	"github.com/slipway-cloud/slipway/internal/bounds"
)

// fewValues bounds the number of values in the body of an operation. transform tells the client why
// such a body cannot be read.
func (*API) fewValues(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && strings.HasPrefix(r.URL.Path, Prefix+"/") {
			r.Body = bounds.NewBody(r.Body)
		}
		next.ServeHTTP(w, r)
	})
}
