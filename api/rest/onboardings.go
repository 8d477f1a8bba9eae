package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/onboarding"
)

// OnboardingRequest asks for a bare server to become an active node. PXE MAC,
// RoCE ports and retries are not in it: they are found, recorded and set by the
// profile.
type OnboardingRequest struct {
	SiteID    string     `json:"site_id" maxLength:"100" required:"true"`
	ProfileID string     `json:"profile_id" maxLength:"100" required:"true"`
	SKUID     string     `json:"sku_id" maxLength:"100" required:"true"`
	Hostname  string     `json:"hostname" required:"true" maxLength:"253" doc:"One DNS label in lower case"`
	BMC       BMCRequest `json:"bmc" required:"true"`
}

// BMCRequest is where the server's BMC is and whose login to use.
type BMCRequest struct {
	Address       string `json:"address" required:"true" maxLength:"300" doc:"host, host:port or https://host:port (for IPMI without https://); no login, no path"`
	CredentialRef string `json:"credential_ref" required:"true" maxLength:"210" doc:"A stored secret: name, or name@version"`
	SystemID      string `json:"system_id,omitempty" maxLength:"200" doc:"Which system, where the BMC has several"`
	Protocol      string `json:"protocol,omitempty" enum:"redfish,ipmi" doc:"How Slipway speaks to this BMC; the profile's power_type when absent. IPMI is for machines without a working Redfish, and never a fallback"`
	// IPMICipherSuite is the per-device exception; there is no automatic choice.
	IPMICipherSuite int `json:"ipmi_cipher_suite,omitempty" enum:"3,17" doc:"Over IPMI only: 17 when absent; 3 for a device that has nothing better"`
}

// bmc is the request as an intent takes it. defaultProtocol is for a request that names none.
func (b BMCRequest) bmc(defaultProtocol string) intent.BMC {
	out := intent.BMC{Address: b.Address, CredentialRef: b.CredentialRef, SystemID: b.SystemID, Protocol: b.Protocol, CipherSuite: b.IPMICipherSuite}
	if out.Protocol == "" {
		out.Protocol = defaultProtocol
	}
	return out
}

func (r OnboardingRequest) intent() onboarding.Request {
	return onboarding.Request{SiteID: r.SiteID, ProfileID: r.ProfileID, SKUID: r.SKUID, Hostname: r.Hostname, BMC: r.BMC.bmc("")}
}

func (s *server) registerOnboardings() {
	tags := []string{"onboardings"}
	op.Add(s.api, huma.Operation{
		OperationID: "create-onboarding", Method: http.MethodPost, Path: "/admin/onboardings", Tags: tags, Summary: "Onboard a bare server",
		Description:   "Accepts the intent and answers at once; the job shows how far it is. A node of this hostname that an earlier onboarding left quarantined is taken up again.",
		DefaultStatus: http.StatusAccepted,
	}, s.createOnboarding)
	s.registerJobsOf(contract.KindOnboarding, "an", "")
}

func (s *server) createOnboarding(ctx context.Context, in *struct {
	op.Key
	Body OnboardingRequest
}) (*op.Created[Job], error) {
	if _, err := in.Required(); err != nil {
		return nil, err
	}
	checked, err := onboarding.Check(ctx, s.store, in.Body.intent())
	if err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Job], error) {
		job, node, err := onboarding.Accept(ctx, tx, checked, op.Actor(ctx))
		if err != nil {
			return nil, err
		}
		return s.acceptedJob("/admin/onboardings/", job, node.Hostname), nil
	})
}
