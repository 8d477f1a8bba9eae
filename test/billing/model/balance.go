package model

import "math/big"

// State is the state of a balance.
type State string

// The states of a balance.
const (
	Healthy  State = "healthy"
	Low      State = "low_balance"
	Depleted State = "depleted"
)

// Thresholds are the balances at which an account changes state, in minor units. Low and Depleted
// are inclusive. A notice is sent again only after the balance was above Rearm.
type Thresholds struct{ Low, Depleted, Rearm *big.Int }

// Account is the balance of a billing account with the notices and releases that it caused.
type Account struct {
	Thresholds
	Balance *big.Int
	// Notices counts warnings of a low balance, Depletions the entries into depleted.
	Notices, Depletions int
	state               State
	warned              bool
}

// NewAccount returns an account without money that nobody has charged yet. Its state is not
// assessed.
func NewAccount(t Thresholds) *Account {
	return &Account{Thresholds: t, Balance: new(big.Int), state: Healthy}
}

// StateAt returns the state that a balance alone stands for.
func (t Thresholds) StateAt(balance *big.Int) State {
	switch {
	case balance.Cmp(t.Depleted) <= 0:
		return Depleted
	case balance.Cmp(t.Low) <= 0:
		return Low
	}
	return Healthy
}

// Post adds an amount, which is negative for a debit.
func (a *Account) Post(amount *big.Int) { a.Balance = new(big.Int).Add(a.Balance, amount) }

// Assess brings the state up to date with the balance. It counts one notice for each episode, which
// begins at Low and lasts until the balance is above Rearm, and one depletion for each entry into
// depleted, also inside one episode.
func (a *Account) Assess() State {
	now := a.StateAt(a.Balance)
	if a.Balance.Cmp(a.Rearm) > 0 {
		a.warned = false
	}
	if now != Healthy && !a.warned {
		a.warned = true
		a.Notices++
	}
	if now == Depleted && a.state != Depleted {
		a.Depletions++
	}
	a.state = now
	return now
}
