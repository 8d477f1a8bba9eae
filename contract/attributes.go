package contract

import (
	"go.temporal.io/sdk/temporal"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// The typed search attributes of every job workflow.
var (
	NodeIDAttribute     = temporal.NewSearchAttributeKeyKeyword(SearchNodeID)
	HostnameAttribute   = temporal.NewSearchAttributeKeyKeyword(SearchHostname)
	SiteIDAttribute     = temporal.NewSearchAttributeKeyKeyword(SearchSiteID)
	JobKindAttribute    = temporal.NewSearchAttributeKeyKeyword(SearchJobKind)
	JobStatusAttribute  = temporal.NewSearchAttributeKeyKeyword(SearchJobStatus)
	StageAttribute      = temporal.NewSearchAttributeKeyKeyword(SearchStage)
	NeedsHumanAttribute = temporal.NewSearchAttributeKeyBool(SearchNeedsHuman)
)

// StartAttributes are the search attributes a job workflow is started with.
func StartAttributes(in JobInput) temporal.SearchAttributes {
	set := []temporal.SearchAttributeUpdate{
		NodeIDAttribute.ValueSet(in.NodeID), SiteIDAttribute.ValueSet(in.SiteID), JobKindAttribute.ValueSet(string(in.Kind)),
		JobStatusAttribute.ValueSet(string(lifecycle.JobPending)), NeedsHumanAttribute.ValueSet(false),
	}
	if in.Hostname != "" {
		set = append(set, HostnameAttribute.ValueSet(in.Hostname))
	}
	return temporal.NewSearchAttributes(set...)
}
