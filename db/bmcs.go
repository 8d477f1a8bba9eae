package db

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/db/gen"
)

// BMC is the management controller of a node: its login by reference, and the
// approved pin of its certificate as 64 hex digits.
type BMC = gen.BMC

// NewBMC is a BMC as it is accepted.
type NewBMC struct {
	NodeID        *string
	Address       string
	Protocol      string // redfish or ipmi
	CredentialRef string
	PinSHA256     string // "" until the first one is approved
	Vendor        string
	SystemID      string
	// CipherSuite is for IPMI: 17 or 3; 0 is 17.
	CipherSuite int
}

// defaultCipherSuite is what IPMI is spoken with unless a device is excepted.
const defaultCipherSuite = 17

// CreateBMC adds a BMC; a node that has one gives *ConflictError with its id.
func (s statements) CreateBMC(ctx context.Context, in NewBMC) (BMC, error) {
	if in.CipherSuite == 0 {
		in.CipherSuite = defaultCipherSuite
	}
	row, err := s.q.InsertBMC(ctx, gen.InsertBMCParams{
		ID: NewID("bmc"), NodeID: in.NodeID, Address: in.Address, Protocol: in.Protocol, CredentialRef: in.CredentialRef,
		PinSHA256: in.PinSHA256, Vendor: in.Vendor, SystemID: in.SystemID, IPMICipherSuite: in.CipherSuite,
	})
	if errors.Is(err, pgx.ErrNoRows) && in.NodeID != nil {
		other, err := s.BMCOfNode(ctx, *in.NodeID)
		if err != nil {
			return BMC{}, err
		}
		return BMC{}, conflictWith("bmcs_node_unique", other.ID)
	}
	return row, MapError("BMC "+in.Address, err)
}

// BMC reads one BMC, or ErrNotFound.
func (s statements) BMC(ctx context.Context, id string) (BMC, error) {
	row, err := s.q.BMC(ctx, id)
	return row, MapError("BMC "+id, err)
}

// BMCOfNode reads a node's BMC, or ErrNotFound.
func (s statements) BMCOfNode(ctx context.Context, nodeID string) (BMC, error) {
	row, err := s.q.BMCOfNode(ctx, nodeID)
	return row, MapError("BMC of node "+nodeID, err)
}

// BMCsAt lists the records of what answers at an address, however that is
// written: a server that is onboarded under another hostname has a second one.
// One to which logins are stopped comes first.
func (s statements) BMCsAt(ctx context.Context, address string) ([]BMC, error) {
	rows, err := s.q.BMCsAt(ctx, writtenAs(address))
	return rows, MapError("BMCs at "+address, err)
}

// IsSameBMCAddress reports whether two addresses name one BMC, however they are written.
func IsSameBMCAddress(a, b string) bool { return slices.Contains(writtenAs(a), b) }

// writtenAs lists how an address may stand in a record: with or without scheme,
// closing slash and a port that is the default of Redfish or IPMI.
func writtenAs(address string) []string {
	_, host, ok := strings.Cut(address, "://")
	if !ok {
		host = address
	}
	host = strings.TrimSuffix(host, "/")
	for _, port := range []string{":443", ":623"} {
		host = strings.TrimSuffix(host, port)
	}
	var out []string
	for _, scheme := range []string{"", "https://", "http://"} {
		for _, port := range []string{"", ":443", ":623"} {
			out = append(out, scheme+host+port, scheme+host+port+"/")
		}
	}
	return out
}

// ListBMCs lists BMCs by id, from the one after the id given.
func (s statements) ListBMCs(ctx context.Context, after string, limit int) ([]BMC, error) {
	rows, err := s.q.ListBMCs(ctx, gen.ListBMCsParams{After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list BMCs", err)
}

// UpdateBMC replaces node, address, protocol, cipher suite, credential, vendor
// and system of b.Version, or ErrStale. Pin and login block have operations of their own.
func (s statements) UpdateBMC(ctx context.Context, b BMC) (BMC, error) {
	row, err := s.q.UpdateBMC(ctx, gen.UpdateBMCParams{
		ID: b.ID, Version: b.Version, NodeID: b.NodeID, Address: b.Address, Protocol: b.Protocol, CredentialRef: b.CredentialRef,
		Vendor: b.Vendor, SystemID: b.SystemID, IPMICipherSuite: b.IPMICipherSuite,
	})
	return CheckUpdate("BMC "+b.ID, row, err, s.bmcExists(ctx, b.ID))
}

// DeleteBMC deletes the version given, or ErrStale.
func (s statements) DeleteBMC(ctx context.Context, id string, version int64) error {
	n, err := s.q.DeleteBMC(ctx, gen.DeleteBMCParams{ID: id, Version: version})
	return CheckDelete("BMC "+id, n, err, s.bmcExists(ctx, id))
}

// DropBMCOfNothing deletes a BMC that no node, machine, rack device, job or rotation names.
// It is repeatable, and writes an audit row when it deletes.
func (tx *Tx) DropBMCOfNothing(ctx context.Context, id string, a Actor) error {
	n, err := tx.q.DropBMCOfNothing(ctx, id)
	if err != nil || n == 0 {
		return MapError("BMC "+id, err)
	}
	return tx.AuditBMC(ctx, id, "", "delete", a, nil)
}

// SetBMCPin approves a certificate pin and forgets one that waited. Repeatable.
func (s statements) SetBMCPin(ctx context.Context, id, pinSHA256 string) error {
	n, err := s.q.SetBMCPin(ctx, gen.SetBMCPinParams{ID: id, PinSHA256: pinSHA256})
	return CheckRepeatable("BMC "+id, n, err, s.bmcExists(ctx, id))
}

// SetBMCPinPending keeps a pin that was seen and that nobody has approved.
func (s statements) SetBMCPinPending(ctx context.Context, id, pinSHA256 string) error {
	n, err := s.q.SetBMCPinPending(ctx, gen.SetBMCPinPendingParams{ID: id, PinPending: pinSHA256})
	return CheckRepeatable("BMC "+id, n, err, s.bmcExists(ctx, id))
}

// SetBMCAddress records another address of a BMC. The approved pin stays. Repeatable.
func (s statements) SetBMCAddress(ctx context.Context, id, address string) error {
	n, err := s.q.SetBMCAddress(ctx, gen.SetBMCAddressParams{ID: id, Address: address})
	return CheckRepeatable("BMC "+id, n, err, s.bmcExists(ctx, id))
}

// SetBMCFacts stores what the BMC said of itself.
func (s statements) SetBMCFacts(ctx context.Context, id, vendor, systemID string) error {
	n, err := s.q.SetBMCFacts(ctx, gen.SetBMCFactsParams{ID: id, Vendor: vendor, SystemID: systemID})
	return CheckRepeatable("BMC "+id, n, err, s.bmcExists(ctx, id))
}

// BlockBMCLogin stops every further login to a BMC until ClearBMCBlock. The
// first reason and time stay when it is blocked again. The reason must hold no
// secret.
func (s statements) BlockBMCLogin(ctx context.Context, id, reason string) error {
	if reason == "" {
		reason = "the BMC rejected the login"
	}
	n, err := s.q.BlockBMCLogin(ctx, gen.BlockBMCLoginParams{ID: id, Reason: ClipText(reason, MaxComment)})
	return CheckRepeatable("BMC "+id, n, err, s.bmcExists(ctx, id))
}

// ClearBMCBlock allows logins again. Repeatable.
func (s statements) ClearBMCBlock(ctx context.Context, id string) error {
	n, err := s.q.ClearBMCBlock(ctx, id)
	return CheckRepeatable("BMC "+id, n, err, s.bmcExists(ctx, id))
}

func (s statements) bmcExists(ctx context.Context, id string) func() error {
	return func() error {
		_, err := s.BMC(ctx, id)
		return err
	}
}
