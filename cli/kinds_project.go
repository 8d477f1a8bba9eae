package cli

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
)

// accountKind finds billing accounts: all of them for an operator, and those that pay for his own
// projects for a customer.
func accountKind() resourceKind {
	return resourceKind{
		noun: "billing account", word: "ACCOUNT", prefix: "acc_", list: "slipway billing-account list", nameQuery: "name",
		rows: func(ctx context.Context, a *app, l lookup) ([]entry, error) {
			operator, err := a.isOperator(ctx)
			if err != nil {
				return nil, err
			}
			if operator {
				return readEntries(ctx, list(a.api.ListBillingAccounts, nil), l)
			}
			return a.ownAccounts(ctx)
		},
	}
}

// ownAccounts lists the billing accounts of the caller's projects whose name he may read.
func (a *app) ownAccounts(ctx context.Context) ([]entry, error) {
	projects, err := projectKind().rows(ctx, a, lookup{})
	if err != nil {
		return nil, err
	}
	var out []entry
	seen := map[string]bool{}
	for _, p := range projects {
		if seen[p.BillingAccountID] {
			continue
		}
		got, err := client.Value(a.api.GetProjectBillingAccount(ctx, p.ID))
		if isForbidden(err) {
			continue // another project may tell the name
		}
		if err != nil {
			return nil, err
		}
		seen[p.BillingAccountID] = true
		out = append(out, entry{ID: got.ID, Name: got.Name})
	}
	return out, nil
}

// projectKind finds projects: all of them for an operator, and his own for a customer.
func projectKind() resourceKind {
	return resourceKind{
		noun: "project", word: "PROJECT", flag: "project", prefix: "prj_", list: "slipway project list", listForOperators: "slipway project list-all",
		rows: func(ctx context.Context, a *app, l lookup) ([]entry, error) {
			operator, err := a.isOperator(ctx)
			if err != nil {
				return nil, err
			}
			if operator {
				return readEntries(ctx, list(a.api.ListAllProjects, &client.ListAllProjectsParams{}), l)
			}
			return readEntries(ctx, list(a.api.ListProjects, &client.ListProjectsParams{}), l)
		},
		owner: func(e entry) string { return e.BillingAccountID },
		owned: func(ctx context.Context, a *app, id string) string {
			return "billing account " + nameOf(id, func() (client.Answer[client.BillingAccount], error) { return a.api.GetBillingAccount(ctx, id) })
		},
		ended:     func(e entry) bool { return e.Status == string(lifecycle.ProjectClosed) },
		deletable: true,
	}
}

// inProjects returns the kind whose resources belong to projects.
func (k resourceKind) inProjects() resourceKind {
	k.owner = func(e entry) string { return e.ProjectID }
	k.owned = func(ctx context.Context, a *app, id string) string { return "project " + a.projectName(ctx, id) }
	return k
}

// projectName returns "NAME (ID)" of a project that the caller may see, or the id alone. The list
// of projects is read once: it tells an operator the names without a reason.
func (a *app) projectName(ctx context.Context, id string) string {
	if a.projectNames == nil {
		a.projectNames = map[string]string{}
		rows, _ := projectKind().rows(ctx, a, lookup{}) // without them the id says it
		for _, e := range rows {
			a.projectNames[e.ID] = e.Name
		}
	}
	return withID(a.projectNames[id], id)
}

// ownInvitationKind finds the invitations that the caller may accept, by the name of the project.
func ownInvitationKind() resourceKind {
	return resourceKind{
		noun: "invitation", word: "INVITATION", prefix: "inv_", list: "slipway invitation mine",
		rows: func(ctx context.Context, a *app, _ lookup) ([]entry, error) { // the route has no pages
			r, err := a.api.ListOwnInvitations(ctx)
			got, err := client.Value(client.Answer[entries](r), err)
			return got.Data, err
		},
		name:  func(e entry) string { return e.ProjectName },
		ended: isNotPending,
	}.inProjects()
}

func isNotPending(e entry) bool { return e.Status != string(lifecycle.InvitationPending) }

// allocationKind finds the allocations of one project, or of all projects of a customer. Without a
// project an operator sees ids alone, since a name belongs to the customer.
func allocationKind() resourceKind {
	own := func(a *app, project string) lister[client.ListAllocation] {
		return list(a.api.ListOwnAllocations, &client.ListOwnAllocationsParams{ProjectID: &project})
	}
	return resourceKind{
		noun: "allocation", word: "ALLOCATION", prefix: "alc_", list: "slipway allocation list --project PROJECT", listForOperators: "slipway allocation list-all", freeName: true,
		rows: func(ctx context.Context, a *app, l lookup) ([]entry, error) {
			if l.project != "" {
				return readEntries(ctx, own(a, l.project), l)
			}
			operator, err := a.isOperator(ctx)
			if err != nil {
				return nil, err
			}
			if operator {
				return readEntries(ctx, list(a.api.ListAllAllocations, &client.ListAllAllocationsParams{}), lookup{limit: l.limit})
			}
			projects, err := projectKind().rows(ctx, a, lookup{})
			if err != nil {
				return nil, err
			}
			var out []entry
			for _, p := range projects {
				rows, err := readEntries(ctx, own(a, p.ID), l)
				if err != nil && !isForbidden(err) {
					return nil, err
				}
				out = append(out, rows...)
			}
			return out, nil
		},
		ended: func(e entry) bool { return lifecycle.Allocation.Terminal(lifecycle.AllocationStatus(e.Status)) },
	}.inProjects()
}

func instanceEnded(e entry) bool {
	status := lifecycle.InstanceStatus(e.Status)
	return status == lifecycle.InstanceTerminated || status == lifecycle.InstanceArchived
}

// instanceKind finds the instances of all projects, for operators.
func instanceKind() resourceKind {
	return resourceKind{
		noun: "instance", word: "INSTANCE", prefix: "inst_", list: "slipway instance list",
		rows: listed(func(a *app, l lookup) lister[client.ListInstance] {
			return list(a.api.ListInstances, &client.ListInstancesParams{Archived: new(true), ProjectID: optional[string](l.project)})
		}),
		ended: instanceEnded,
	}.inProjects()
}

// projectInstanceKind finds the instances of a project, for its members.
func projectInstanceKind() resourceKind {
	return resourceKind{
		noun: "instance", word: "INSTANCE", prefix: "inst_", list: "slipway instance own list PROJECT", ofProject: true,
		rows: listedBelow(func(a *app) func(context.Context, string, *client.ListProjectInstancesParams, ...client.Option) (client.Answer[client.ListProjectInstance], error) {
			return a.api.ListProjectInstances
		}),
		ended: instanceEnded,
	}
}

func memberKind() resourceKind {
	return resourceKind{
		noun: "member", word: "MEMBER", prefix: "mem_", list: "slipway member list PROJECT", ofProject: true, freeName: true,
		rows: listedBelow(func(a *app) func(context.Context, string, *client.ListMembersParams, ...client.Option) (client.Answer[client.ListMember], error) {
			return a.api.ListMembers
		}),
	}
}

// invitationKind finds the invitations to a project by the address or the subject that is invited.
func invitationKind() resourceKind {
	return resourceKind{
		noun: "invitation", word: "INVITATION", prefix: "inv_", list: "slipway invitation list PROJECT", ofProject: true, freeName: true,
		rows: listedBelow(func(a *app) func(context.Context, string, *client.ListInvitationsParams, ...client.Option) (client.Answer[client.ListInvitation], error) {
			return a.api.ListInvitations
		}),
		name:  func(e entry) string { return e.Email + e.Subject }, // it has one of the two
		ended: isNotPending,
	}
}

func keyKind() resourceKind {
	return resourceKind{
		noun: "SSH key", word: "KEY", prefix: "key_", list: "slipway key list PROJECT", ofProject: true,
		rows: listedBelow(func(a *app) func(context.Context, string, *client.ListSSHKeysParams, ...client.Option) (client.Answer[client.ListSSHKey], error) {
			return a.api.ListSSHKeys
		}),
	}
}

func projectTokenKind() resourceKind {
	return resourceKind{
		noun: "token", word: "TOKEN", prefix: "tok_", list: "slipway project-token list PROJECT", ofProject: true,
		rows: listedBelow(func(a *app) func(context.Context, string, *client.ListProjectTokensParams, ...client.Option) (client.Answer[client.ListProjectToken], error) {
			return a.api.ListProjectTokens
		}),
	}
}

func webhookKind() resourceKind {
	return resourceKind{
		noun: "webhook", word: "WEBHOOK", prefix: "whk_", list: "slipway webhook list PROJECT", ofProject: true,
		rows: listedBelow(func(a *app) func(context.Context, string, *client.ListWebhooksParams, ...client.Option) (client.Answer[client.ListWebhook], error) {
			return a.api.ListWebhooks
		}),
	}
}

// grpcPages reads the pages of a list of the gRPC API, at most l.limit rows.
func grpcPages(ctx context.Context, a *app, l lookup, read func(ctx context.Context, token string) (rows []entry, next string, err error)) ([]entry, error) {
	limit := l.limit
	if limit == 0 {
		limit = maxLookup + 1
	}
	var out []entry
	for token := ""; ; {
		bounded, cancel := a.bounded(ctx)
		rows, next, err := read(bounded, token)
		cancel()
		if err != nil {
			return nil, called(err)
		}
		out = append(out, rows...)
		if next == "" || len(out) >= limit {
			return out[:min(len(out), limit)], nil
		}
		token = next
	}
}

// planKind finds plans of runs. The creator of a plan may choose its id.
func planKind() resourceKind {
	return resourceKind{
		noun: "plan", word: "PLAN", flag: "plan", prefix: "plan_", list: "slipway plan list", freeName: true, freeID: true,
		rows: func(ctx context.Context, a *app, l lookup) ([]entry, error) {
			return grpcPages(ctx, a, l, func(ctx context.Context, token string) ([]entry, string, error) {
				out, err := a.plans().ListPlans(ctx, request(l.as, &slipwayv1.ListPlansRequest{PageSize: planPage, PageToken: token}))
				if err != nil {
					return nil, "", err
				}
				rows := make([]entry, 0, len(out.Msg.GetPlans()))
				for _, p := range out.Msg.GetPlans() {
					rows = append(rows, entry{ID: p.GetPlanId(), Name: p.GetDisplayName()})
				}
				return rows, out.Msg.GetNextPageToken(), nil
			})
		},
	}
}

func campaignKind() resourceKind {
	return resourceKind{
		noun: "campaign", word: "CAMPAIGN", prefix: "campaign_", list: "slipway campaign list", freeName: true,
		rows: func(ctx context.Context, a *app, l lookup) ([]entry, error) {
			return grpcPages(ctx, a, l, func(ctx context.Context, token string) ([]entry, string, error) {
				out, err := a.campaigns().ListCampaigns(ctx, request(l.as, &slipwayv1.ListCampaignsRequest{PageSize: planPage, PageToken: token}))
				if err != nil {
					return nil, "", err
				}
				rows := make([]entry, 0, len(out.Msg.GetCampaigns()))
				for _, c := range out.Msg.GetCampaigns() {
					rows = append(rows, entry{ID: c.GetCampaignId(), Name: c.GetDisplayName(), Status: c.GetState().String(), ProjectID: c.GetCustomerId()})
				}
				return rows, out.Msg.GetNextPageToken(), nil
			})
		},
		ended: func(e entry) bool {
			return e.Status == slipwayv1.Campaign_COMPLETED.String() || e.Status == slipwayv1.Campaign_CANCELED.String()
		},
	}.inProjects()
}

// isForbidden reports that the server refused a request for want of a role.
func isForbidden(err error) bool {
	var f *failure
	return errors.As(asFailure(err), &f) && f.code == ExitUnauthorised
}
