package maassim

import (
	"net/http"
	"time"
)

// faultAnswer is the answer that a fault gives in place of a call's own; own is
// nil when the call was not carried out.
func (s *Server) faultAnswer(f *Fault, c *call, own *reply) *reply {
	switch f.Name {
	case "bmc_unreachable":
		return bmcUnreachable(c.subject())
	case "bmc_auth":
		return text(500, "%s", bmcRefused)
	case "query_power_timeout":
		return s.powerTimeout(f, c)
	case "dup_mac_create":
		return duplicateMAC(f, c)
	case "dup_hostname":
		return field("hostname", "Node with this Hostname already exists.")
	case "ip_exhaustion":
		return text(503, "%s", noAddresses)
	case "image_missing":
		return text(400, "Deployment operating system %s is unavailable for %s.", c.form.Get("distro_series"), archOf(c.rec))
	default:
		return s.wireAnswer(f, c, own)
	}
}

// wireAnswer covers the faults that any call can meet.
func (s *Server) wireAnswer(f *Fault, c *call, own *reply) *reply {
	switch f.Name {
	case "http_401":
		if f.Is("clock") {
			now := time.Now().Unix()
			return expired(now-2*maxSkew, now)
		}
		return unauthorized("Invalid access token: revoked")
	case "http_400_unauth":
		return anonymousRefusal(c.req.Method, c.opWord)
	case "http_403":
		return text(403, "")
	case "409_state":
		return stateConflict("The operation is not allowed in the present state.")
	case "409_serialization":
		return serialization()
	case "503_retry_after":
		return text(503, "Unable to connect to any rack controller; no connections available.").with("Retry-After", "10")
	case "504_but_continues":
		return gatewayTimeout()
	case "connection_reset":
		return &reply{header: http.Header{}, wire: wireAct{reset: true}}
	case "slow_response":
		out := own
		if out == nil { // before the commit: the proxy gives up on a request that never got in
			out = gatewayTimeout()
		}
		out.wire.delay = f.Duration("delay", 2*time.Second)
		return out
	case "redirect_301":
		return text(301, "").with("Location", "https://"+c.req.Host+c.req.URL.RequestURI())
	case "truncated_json":
		out := *orOK(own)
		if len(out.body) == 0 {
			out.body = []byte(`{"truncated`)
		}
		out.body = out.body[:(len(out.body)+1)/2]
		return &out
	default:
		return text(500, "fault %s has no answer", f.Name)
	}
}

func gatewayTimeout() *reply {
	return raw(504, "text/html", []byte("<html><head><title>504 Gateway Time-out</title></head><body><center><h1>504 Gateway Time-out</h1></center></body></html>"))
}

func orOK(own *reply) *reply {
	if own == nil {
		return raw(200, "application/json; charset=utf-8", []byte(`{"cut": `))
	}
	return own
}

func (s *Server) powerTimeout(f *Fault, c *call) *reply {
	out := text(504, "Timed out after 60 seconds while querying the power state of node %s.", idOf(c.rec))
	if f.Is("hang") {
		out.wire.delay = f.Duration("delay", 60*time.Second)
	}
	return out
}

// duplicateMAC has the three body shapes that were seen in the field.
func duplicateMAC(f *Fault, c *call) *reply {
	mac := "00:00:00:00:00:00"
	if macs := c.form["mac_addresses"]; len(macs) > 0 {
		mac = macs[0]
	}
	msg := "MAC address " + mac + " already in use on " + "other-node" + "."
	switch {
	case f.Is("list"):
		return jsonCode(400, []string{msg})
	case f.Is("all"):
		return field("__all__", "%s", msg)
	default:
		return field("mac_addresses", "%s", msg)
	}
}

func archOf(m *machine) string {
	if m == nil {
		return "amd64"
	}
	return m.arch
}

func idOf(m *machine) string {
	if m == nil {
		return "unknown"
	}
	return m.id
}
