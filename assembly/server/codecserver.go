package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/slipway-cloud/slipway/api/op"
)

// codecPath is where the codec server is: Temporal's tools are given the API's URL with it.
const codecPath = "/codec"

// The limits of one request. A page of a history has at most four megabytes of payloads.
const (
	maxCodecBody     = 8 << 20
	maxCodecPayloads = 2000
)

// withCodecServer serves Temporal's codec server protocol beside the API: the Web UI and the
// command line decode payloads with it, and encode the input that an operator gives them.
func (a *App) withCodecServer(api *op.API) http.Handler {
	codec := api.Around(codecServer(a.Payloads, a.Config.API.Origins(), func(h http.Handler) http.Handler { return api.RequireRole(op.RoleOperator, h) }))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, codecPath+"/") {
			codec.ServeHTTP(w, r)
			return
		}
		api.Handler().ServeHTTP(w, r)
	})
}

// codecServer answers callers whom protect lets through. A browser's script may ask from the given
// origins only. Payloads hold what operators may see, so nothing is decoded for anybody else.
func codecServer(codec converter.PayloadCodec, origins []string, protect func(http.Handler) http.Handler) http.Handler {
	handler := converter.NewPayloadCodecHTTPHandler(limitedCodec{codec})
	protected := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := bodySize(r); status != http.StatusOK {
			http.Error(w, fmt.Sprintf("a request names its length, which is %d bytes at most; ask for fewer payloads", maxCodecBody), status)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Vary", "Origin")
		if origin := r.Header.Get("Origin"); origin != "" {
			if !slices.Contains(origins, origin) {
				http.Error(w, "this origin may not use the codec server; api.codec_origins names those that may", http.StatusForbidden)
				return
			}
			h.Set("Access-Control-Allow-Origin", origin)
		}
		if r.Method == http.MethodOptions {
			h.Set("Access-Control-Allow-Methods", "POST, OPTIONS")
			h.Set("Access-Control-Allow-Headers", "Authorization, Authorization-Extras, Content-Type, X-Namespace")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// bodySize returns 200, or the status that refuses the length of a body. The handler of Temporal's
// SDK holds a body twice while it reads it, so a body without a length is not read at all.
func bodySize(r *http.Request) int {
	switch {
	case r.ContentLength < 0:
		return http.StatusLengthRequired
	case r.ContentLength > maxCodecBody:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusOK
}

// limitedCodec refuses requests with too many payloads.
type limitedCodec struct{ converter.PayloadCodec }

func (c limitedCodec) Encode(p []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return limited(p, c.PayloadCodec.Encode)
}

func (c limitedCodec) Decode(p []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return limited(p, c.PayloadCodec.Decode)
}

func limited(p []*commonpb.Payload, do func([]*commonpb.Payload) ([]*commonpb.Payload, error)) ([]*commonpb.Payload, error) {
	if len(p) > maxCodecPayloads {
		return nil, fmt.Errorf("a request may hold %d payloads, this one holds %d", maxCodecPayloads, len(p))
	}
	return do(p)
}
