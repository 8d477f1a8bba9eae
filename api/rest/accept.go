package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// OnboardingRequest asks for a bare server to become an active node. PXE MAC,
// RoCE ports and retries are not in it (04-jobs): they are found, recorded and
// set by the profile.
type OnboardingRequest struct {
	SiteID    string     `json:"site_id" required:"true"`
	ProfileID string     `json:"profile_id" required:"true"`
	SKUID     string     `json:"sku_id" required:"true"`
	Hostname  string     `json:"hostname" required:"true" doc:"One DNS label in lower case"`
	BMC       BMCRequest `json:"bmc" required:"true"`
}

// BMCRequest is where the server's BMC is and whose login to use.
type BMCRequest struct {
	Address       string `json:"address" required:"true" doc:"host, host:port or https://host:port (for IPMI without https://); no login, no path"`
	CredentialRef string `json:"credential_ref" required:"true" doc:"A stored secret: name, or name@version"`
	SystemID      string `json:"system_id,omitempty" maxLength:"200" doc:"Which system, where the BMC has several"`
	Protocol      string `json:"protocol,omitempty" enum:"redfish,ipmi" doc:"How Slipway speaks to this BMC; the profile's power_type when absent. IPMI is for machines without a working Redfish, and never a fallback"`
	// IPMICipherSuite is the per-device exception; there is no automatic choice.
	IPMICipherSuite int `json:"ipmi_cipher_suite,omitempty" enum:"3,17" doc:"Over IPMI only: 17 when absent; 3 for a device that has nothing better"`
}

// protocolIPMI is the protocol that has no certificate and no URL.
const protocolIPMI = "ipmi"

// protocol is how the BMC of a request is spoken to.
func (a acceptance) protocol() string {
	if a.BMC.Protocol != "" {
		return a.BMC.Protocol
	}
	return a.profile.Spec.WithDefaults().PowerType
}

// acceptance is a request whose references were read.
type acceptance struct {
	OnboardingRequest
	manual  bool
	batchID *string
	site    db.Site
	profile db.Profile
}

// check reads what the request refers to and names all that is wrong with it.
// at is where the request stands in the body.
func (s *Server) check(ctx context.Context, r OnboardingRequest, manual bool, at string) (acceptance, error) {
	a := acceptance{OnboardingRequest: r, manual: manual}
	var bad []problem.Field
	wrong := func(field, message string) { bad = append(bad, problem.Field{Location: at + field, Message: message}) }
	reads := func(field, what string, err error) error {
		if errors.Is(err, db.ErrNotFound) {
			wrong(field, "there is no such "+what)
			return nil
		}
		return err
	}
	var err error
	a.site, err = s.cfg.Store.Site(ctx, r.SiteID)
	if err := reads("site_id", "site", err); err != nil {
		return a, err
	}
	a.profile, err = s.cfg.Store.Profile(ctx, r.ProfileID)
	if err := reads("profile_id", "profile", err); err != nil {
		return a, err
	}
	if err == nil && a.site.ID != "" && a.profile.SiteID != a.site.ID {
		wrong("profile_id", "is a profile of another site")
	}
	_, err = s.cfg.Store.SKU(ctx, r.SKUID)
	if err := reads("sku_id", "SKU", err); err != nil {
		return a, err
	}
	if !spec.ValidHostname(r.Hostname) {
		wrong("hostname", "must be one DNS label in lower case: letters, digits and dashes, at most 63")
	}
	if !manual {
		if err := s.checkBMC(ctx, r.BMC, a.protocol(), wrong); err != nil {
			return a, err
		}
	}
	if len(bad) > 0 {
		return a, problem.NewInvalid(bad...)
	}
	return a, nil
}

func (s *Server) checkBMC(ctx context.Context, b BMCRequest, protocol string, wrong func(field, message string)) error {
	switch {
	case protocol == protocolIPMI && (!validBMCAddress(b.Address) || strings.Contains(b.Address, "/")):
		wrong("bmc.address", "must be host or host:port for IPMI, without https://, a login or a path")
	case !validBMCAddress(b.Address):
		wrong("bmc.address", "must be host, host:port or https://host:port, without a login or a path")
	}
	if b.IPMICipherSuite != 0 && protocol != protocolIPMI {
		wrong("bmc.ipmi_cipher_suite", "is for the protocol ipmi only")
	}
	if !spec.ValidRef(b.CredentialRef) {
		wrong("bmc.credential_ref", "is not a secret reference (name or name@version); store the login first with `slipway secret put`")
		return nil
	}
	there, err := s.secretExists(ctx, b.CredentialRef)
	if err != nil {
		return err
	}
	if !there {
		wrong("bmc.credential_ref", "there is no such secret; store the login first with `slipway secret put`")
	}
	return nil
}

func validBMCAddress(address string) bool {
	if len(address) > 255 || strings.ContainsAny(address, " \t\r\n") {
		return false
	}
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.User == nil && u.Hostname() != "" &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == ""
}

// accept writes the intent: node, BMC, job and outbox row, with their audit
// rows. A request that is refused, by a *problem.Problem or a *db.ConflictError,
// has written nothing, so that the transaction can go on.
func (s *Server) accept(ctx context.Context, tx *db.Tx, a acceptance) (db.Job, db.Node, error) {
	node, err := s.takeNode(ctx, tx, a)
	if err != nil {
		return db.Job{}, db.Node{}, err
	}
	in := contract.OnboardingInput{Manual: a.manual, SiteID: a.SiteID, ProfileID: a.ProfileID, SKUID: a.SKUID, Hostname: a.Hostname}
	if !a.manual {
		if in.BMCID, err = takeBMC(ctx, tx, node.ID, a); err != nil {
			return db.Job{}, db.Node{}, err
		}
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return db.Job{}, db.Node{}, fmt.Errorf("onboarding input: %w", err)
	}
	id := db.NewID("job")
	job, err := tx.CreateJob(ctx, db.NewJob{
		ID: id, Kind: string(contract.KindOnboarding), NodeID: &node.ID, SiteID: &node.SiteID, ProfileID: &a.ProfileID, BatchID: a.batchID, Input: raw,
		WorkflowID: contract.JobWorkflowID(contract.KindOnboarding, id), Actor: s.actor(ctx),
	})
	return job, node, err
}

// takeNode creates the node, or takes up one of this hostname that an earlier
// onboarding left: quarantined, or never started.
func (s *Server) takeNode(ctx context.Context, tx *db.Tx, a acceptance) (db.Node, error) {
	old, err := tx.LiveNodeOfHost(ctx, a.SiteID, a.Hostname)
	if errors.Is(err, db.ErrNotFound) {
		return tx.CreateNode(ctx, db.NewNode{
			Hostname: a.Hostname, SiteID: a.SiteID, SKUID: &a.SKUID, ProfileID: &a.ProfileID, Simulated: a.site.Spec.Simulated, Actor: s.actor(ctx),
		})
	}
	if err != nil {
		return db.Node{}, err
	}
	if old, err = tx.LockNode(ctx, old.ID); err != nil {
		return db.Node{}, err
	}
	live, err := tx.LiveJobOfNode(ctx, old.ID)
	if err == nil {
		return db.Node{}, problem.New(problem.LiveJob,
			fmt.Sprintf("node %s is being worked on by job %s; wait for it to end, or cancel it", a.Hostname, live.ID)).With(live.ID)
	}
	if !errors.Is(err, db.ErrNotFound) {
		return db.Node{}, err
	}
	// Enrolling and without a live job: its onboarding was lost, and this is the way out.
	if old.Status != lifecycle.NodeQuarantined && old.Status != lifecycle.NodeBootstrapIssued && old.Status != lifecycle.NodeEnrolling {
		return db.Node{}, problem.New(problem.Conflict, fmt.Sprintf(
			"node %s has the hostname %s already and is %s; only a quarantined node can be onboarded again; choose another hostname, or retire and remove that node",
			old.ID, a.Hostname, old.Status)).With(old.ID)
	}
	// Installing the system anew erases no disk but its own.
	if dirty := db.SanitizeRequired(old); dirty != "" {
		return db.Node{}, problem.New(problem.Conflict, "it cannot be onboarded again as it is: "+dirty).With(old.ID)
	}
	return tx.UpdateNode(ctx, old.ID, old.Version, db.NodePatch{SKUID: &a.SKUID, ProfileID: &a.ProfileID})
}

// takeBMC creates the node's BMC, or gives the one it has the address and login
// of the request. At another address the approved pin does not hold.
func takeBMC(ctx context.Context, tx *db.Tx, nodeID string, a acceptance) (string, error) {
	old, err := tx.BMCOfNode(ctx, nodeID)
	if errors.Is(err, db.ErrNotFound) {
		b, err := tx.CreateBMC(ctx, db.NewBMC{
			NodeID: &nodeID, Address: a.BMC.Address, Protocol: a.protocol(), CredentialRef: a.BMC.CredentialRef, SystemID: a.BMC.SystemID,
			CipherSuite: a.BMC.IPMICipherSuite,
		})
		return b.ID, err
	}
	if err != nil {
		return "", err
	}
	moved := old.Address != a.BMC.Address
	old.Address, old.CredentialRef, old.Protocol = a.BMC.Address, a.BMC.CredentialRef, a.protocol()
	if a.BMC.IPMICipherSuite != 0 {
		old.IPMICipherSuite = a.BMC.IPMICipherSuite
	}
	if moved || a.BMC.SystemID != "" {
		old.SystemID = a.BMC.SystemID
	}
	if _, err = tx.UpdateBMC(ctx, old); err == nil && moved {
		err = tx.SetBMCPin(ctx, old.ID, "")
	}
	return old.ID, err
}
