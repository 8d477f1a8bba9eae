package db

import (
	"bytes"
	"context"
	"time"

	"github.com/slipway-cloud/slipway/db/gen"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// AgentSilentAfter is the age at which a heartbeat no longer proves a living agent.
const AgentSilentAfter = 10 * time.Minute

// AgentUnable returns why the identity of a node's agent cannot work any more, "" where it can: it
// was locked or never enrolled, or its certificate ended longer ago than the grace of a renewal.
func (s statements) AgentUnable(ctx context.Context, nodeID string) (string, error) {
	standing, err := s.AgentIdentityStanding(ctx, nodeID)
	return standing.Why, err
}

// RevokeTokensOfJob ends the enrolment tokens of a job that no agent has used. Repeatable.
func (s statements) RevokeTokensOfJob(ctx context.Context, jobID string) error {
	_, err := s.q.RevokeTokensOfJob(ctx, jobID)
	return MapError("enrolment tokens of job "+jobID, err)
}

// OpenTokensOfJob counts the enrolment tokens of a job that an agent could still use.
func (s statements) OpenTokensOfJob(ctx context.Context, jobID string) (int64, error) {
	n, err := s.q.OpenTokensOfJob(ctx, jobID)
	return n, MapError("enrolment tokens of job "+jobID, err)
}

// SiteAgent is a node of a site with how its agent stands.
type SiteAgent = gen.AgentsOfSiteRow

// AgentsOfSite lists the nodes of a site in these states whose agent enrolled once: those that no
// job holds first, and the oldest certificate before newer ones. Without everyone it lists those
// whose agent is locked, has a certificate that ended, or is silent.
func (s statements) AgentsOfSite(ctx context.Context, siteID string, in []lifecycle.NodeStatus, everyone bool, limit int) ([]SiteAgent, error) {
	statuses := make([]string, 0, len(in))
	for _, s := range in {
		statuses = append(statuses, string(s))
	}
	rows, err := s.q.AgentsOfSite(ctx, gen.AgentsOfSiteParams{
		SiteID: siteID, Statuses: statuses, Everyone: everyone, SilentSeconds: AgentSilentAfter.Seconds(), MaxRows: PageLimit(limit),
	})
	return rows, MapError("agents of site "+siteID, err)
}

// AgentRelease is a signed release of the node agent.
type AgentRelease = gen.AgentRelease

// AddAgentRelease stores a release. The same release again changes nothing; another one of the same
// version is a *ConflictError.
func (tx *Tx) AddAgentRelease(ctx context.Context, r AgentRelease) (AgentRelease, error) {
	n, err := tx.q.InsertAgentRelease(ctx, gen.InsertAgentReleaseParams{
		Version: r.Version, Manifest: r.Manifest, Signature: r.Signature, BinaryURL: r.BinaryURL, CreatedBy: r.CreatedBy,
	})
	if err != nil {
		return AgentRelease{}, MapError("agent release "+r.Version, err)
	}
	stored, err := tx.AgentRelease(ctx, r.Version)
	if err != nil || n == 1 {
		return stored, err
	}
	if !bytes.Equal(stored.Manifest, r.Manifest) || !bytes.Equal(stored.Signature, r.Signature) || stored.BinaryURL != r.BinaryURL {
		return stored, &ConflictError{What: "agent_release", Existing: r.Version,
			Message: "release " + r.Version + " is stored with another manifest, signature or URL, and a release does not change; sign a new version"}
	}
	return stored, nil
}

// AgentRelease reads a release, or ErrNotFound.
func (s statements) AgentRelease(ctx context.Context, version string) (AgentRelease, error) {
	r, err := s.q.AgentRelease(ctx, version)
	return r, MapError("agent release "+version, err)
}

// ListAgentReleases lists releases by version, from the one after the version given.
func (s statements) ListAgentReleases(ctx context.Context, after string, limit int) ([]AgentRelease, error) {
	rows, err := s.q.ListAgentReleases(ctx, gen.ListAgentReleasesParams{After: after, MaxRows: PageLimit(limit)})
	return rows, MapError("list agent releases", err)
}
