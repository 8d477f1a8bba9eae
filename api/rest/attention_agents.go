package rest

const agentRunbook = "docs/agent.md#when-an-identity-does-not-work"

func explainAgentEnds(a *Attention) {
	a.NextAction = "Start the node and see that its agent runs and reaches the agent API: it then renews by itself, also for a while after the end (agent.renew_grace). " +
		"Later it needs a new enrolment token."
	a.Runbook = agentRunbook
}

func explainAgentAdopted(a *Attention) {
	a.NextAction = "Nothing, if the database was restored from a backup or failed over: the agents work, and each leaves this line when it renews next. " +
		"If it was neither, somebody else has the key of the node CA; look at the entries agent_certificate_adopted in the audit log."
	a.Runbook = agentRunbook
}

func explainAgentRefused(a *Attention) {
	a.NextAction = "Find out who is at the address. A former system or tenant with an old copy gets nowhere, and nobody is locked out. " +
		"If it is the node itself, give its agent a new enrolment token."
	a.Runbook = agentRunbook
}
