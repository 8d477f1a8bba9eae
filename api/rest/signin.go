package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
)

// SignIn is how a program on a user's machine signs its user in at the identity provider. None of
// it is secret: programs are public clients.
type SignIn struct {
	Issuer   string `json:"issuer" doc:"URL of the OpenID Connect issuer, whose configuration is read below it"`
	ClientID string `json:"client_id" doc:"Client ID of programs, a public client of the issuer"`
	Token    string `json:"token" enum:"access_token,id_token" doc:"Token of the issuer's answer that this API accepts as bearer"`
}

func (s *server) registerSignIn() {
	op.Add(s.api, huma.Operation{
		OperationID: "sign-in", Method: http.MethodGet, Path: "/sign-in", Tags: []string{"system"}, Summary: "How programs sign their users in",
		Description: "Programs get a token from the issuer, by the authorization code grant with PKCE and a loopback redirect, or by the device grant. " +
			"Without an issuer for programs the answer is 404, and only API tokens are accepted.",
	}, func(context.Context, *struct{}) (*struct{ Body SignIn }, error) {
		if s.cfg.SignIn.ClientID == "" {
			return nil, problem.New(problem.NotFound, "this server has no identity provider for programs (oidc.cli_client_id); sign in with an API token")
		}
		return &struct{ Body SignIn }{s.cfg.SignIn}, nil
	})
}
