package agentapi

import (
	"bytes"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/nodeca"
)

// rank is how a certificate, which the node CA issued, compares with the newest one that the
// database knows of its node.
type rank int

const (
	rankPresent       rank = iota // it is the newest one
	rankOlder                     // of the same enrolment, an older generation
	rankForked                    // of the same enrolment and generation, with another key
	rankNewer                     // of the same enrolment, a generation that the database forgot
	rankEnrolledLater             // of an enrolment that the database forgot
	rankFormer                    // of an enrolment before the last
	rankDenied                    // its identity ended
	rankAbsurd                    // further ahead than anything that was issued
)

// issuedAt is when the certificate was issued.
func (c caller) issuedAt() time.Time { return c.leaf.NotBefore.Add(nodeca.SkewAllowance) }

// compare ranks the certificate. The time of issue decides before the counters: after a restore the
// numbers of enrolments that were lost are given again.
func (c caller) compare() rank {
	now := c.now
	ahead := max(c.Generation-now.Generation, c.Enrolment-now.Enrolment)
	switch {
	case c.Enrolment > 0 && c.Enrolment <= now.EndedEnrolment, c.Enrolment == 0 && c.Generation <= now.EndedGeneration:
		return rankDenied
	case c.Generation == now.Generation && bytes.Equal(now.KeyHash, c.key[:]):
		return rankPresent
	case c.leaf.NotBefore.Before(now.EnrolledFrom.Truncate(time.Second)), c.Enrolment > 0 && c.Enrolment < now.Enrolment:
		return rankFormer
	case ahead > db.MaxGenerationsAhead:
		return rankAbsurd
	case c.Enrolment > now.Enrolment:
		return rankEnrolledLater
	case c.Generation > now.Generation:
		return rankNewer
	case c.Generation == now.Generation:
		return rankForked
	}
	return rankOlder
}
