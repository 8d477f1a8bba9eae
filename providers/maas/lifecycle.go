package maas

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"

	"github.com/slipway-cloud/slipway/providers"
)

// maxUserData bounds what Deploy sends, in bytes before encoding.
const maxUserData = 1 << 20

// Machine reads one machine; KindNotFound means absent.
func (c *client) Machine(ctx context.Context, systemID string) (providers.MAASMachine, error) {
	var m providers.MAASMachine
	if err := checkID("machine", systemID); err != nil {
		return m, err
	}
	err := c.call(ctx, read("machine"), func(s *session) error {
		var raw json.RawMessage
		if err := s.get("", url.Values{}, &raw, "machines", systemID); err != nil {
			return err
		}
		return keepMachine(raw, systemID, &m)
	})
	return orNone(m, err)
}

// Commission starts commissioning. skip_bmc_config keeps MAAS from rewriting
// the BMC login that Slipway itself uses. The wrong state is
// KindStateConflict, though MAAS answers 400 there.
func (c *client) Commission(ctx context.Context, systemID string, in providers.MAASCommission) (providers.MAASMachine, error) {
	if in.TestingScripts != "" && !scriptsForm.MatchString(in.TestingScripts) {
		return providers.MAASMachine{}, invalid("maas.commission", "the testing scripts must be \"none\" or a list of names with commas")
	}
	v := url.Values{
		"skip_bmc_config": {"1"},
		"skip_networking": {bit(in.SkipNetworking)},
		"skip_storage":    {bit(in.SkipStorage)},
	}
	setNonEmpty(v, "testing_scripts", in.TestingScripts)
	return c.machineOp(ctx, "commission", systemID, "commission", v)
}

// OverrideFailedTesting accepts a machine in Failed testing as it is.
func (c *client) OverrideFailedTesting(ctx context.Context, systemID, remark string) error {
	v := url.Values{}
	setNonEmpty(v, "comment", comment(remark))
	_, err := c.machineOp(ctx, "override_failed_testing", systemID, "override_failed_testing", v)
	return err
}

// Allocate takes a Ready machine for the API key's user. Calling it on a
// machine that is taken is KindStateConflict.
func (c *client) Allocate(ctx context.Context, systemID, agentName, remark string) (providers.MAASMachine, error) {
	var m providers.MAASMachine
	if err := checkID("allocate", systemID); err != nil {
		return m, err
	}
	if agentName != "" && !printable(agentName, 255) {
		return m, invalid("maas.allocate", "the agent name must be one line of at most 255 bytes")
	}
	v := url.Values{"system_id": {systemID}}
	setNonEmpty(v, "agent_name", agentName)
	setNonEmpty(v, "comment", comment(remark))
	err := c.call(ctx, write("allocate"), func(s *session) error {
		return s.post("allocate", v, func(data []byte) error { return keepMachine(data, systemID, &m) }, "machines")
	})
	return orNone(m, err)
}

// SetWorkloadAnnotations adds or replaces annotations; an empty value removes
// one. MAAS wipes them on release.
func (c *client) SetWorkloadAnnotations(ctx context.Context, systemID string, kv map[string]string) error {
	if len(kv) > 64 {
		return invalid("maas.annotate", "more than 64 annotations at once")
	}
	v := url.Values{}
	for key, value := range kv {
		if key == "op" || !annKeyForm.MatchString(key) || len(value) > 2048 {
			return invalid("maas.annotate", "an annotation is a name of letters, digits, dots, hyphens and underscores (not \"op\") with at most 2048 bytes")
		}
		v.Set(key, value)
	}
	_, err := c.machineOp(ctx, "annotate", systemID, "set_workload_annotations", v)
	return err
}

// Deploy starts an installation on a Ready or Allocated machine; from Ready
// MAAS allocates by itself. Deployed later means that cloud-init asked for its
// user data, not that it ran.
func (c *client) Deploy(ctx context.Context, systemID string, in providers.MAASDeploy) (providers.MAASMachine, error) {
	const op = "deploy"
	if len(in.UserData) > maxUserData {
		return providers.MAASMachine{}, invalid("maas.deploy", "the user data is over 1 MiB")
	}
	if err := checkNames(op, "series", in.DistroSeries, "kernel", in.HWEKernel); err != nil {
		return providers.MAASMachine{}, err
	}
	v := url.Values{}
	setNonEmpty(v, "distro_series", in.DistroSeries)
	setNonEmpty(v, "hwe_kernel", in.HWEKernel)
	setNonEmpty(v, "comment", comment(in.Comment))
	if len(in.UserData) > 0 {
		v.Set("user_data", base64.StdEncoding.EncodeToString(in.UserData))
	}
	if in.EnableHWSync {
		v.Set("enable_hw_sync", "true")
	}
	return c.machineOp(ctx, op, systemID, "deploy", v)
}

// Abort stops what is in progress. The answer shows the old status; re-read.
func (c *client) Abort(ctx context.Context, systemID, remark string) error {
	v := url.Values{}
	setNonEmpty(v, "comment", comment(remark))
	_, err := c.machineOp(ctx, "abort", systemID, "abort", v)
	return err
}

// Release gives a machine back. On Ready and Releasing it does nothing.
func (c *client) Release(ctx context.Context, systemID string, in providers.MAASRelease) error {
	v := url.Values{}
	for name, on := range map[string]bool{
		"erase": in.Erase, "secure_erase": in.SecureErase, "quick_erase": in.QuickErase, "force": in.Force,
	} {
		if on {
			v.Set(name, "true")
		}
	}
	setNonEmpty(v, "comment", comment(in.Comment))
	_, err := c.machineOp(ctx, "release", systemID, "release", v)
	return err
}

// PowerOn asks MAAS to switch the machine on; confirm with QueryPower.
func (c *client) PowerOn(ctx context.Context, systemID string) error {
	return c.power(ctx, "power_on", systemID, url.Values{})
}

// PowerOff asks MAAS to switch the machine off, at once or through the OS.
func (c *client) PowerOff(ctx context.Context, systemID string, hard bool) error {
	mode := "soft"
	if hard {
		mode = "hard"
	}
	return c.power(ctx, "power_off", systemID, url.Values{"stop_mode": {mode}})
}

// power accepts null as an answer: MAAS gives it where it cannot control the
// power, and the caller asks QueryPower either way.
func (c *client) power(ctx context.Context, op, systemID string, v url.Values) error {
	if err := checkID(op, systemID); err != nil {
		return err
	}
	return c.call(ctx, write(op), func(s *session) error {
		return s.post(op, v, func(data []byte) error {
			if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
				return nil
			}
			return keepMachine(data, systemID, new(providers.MAASMachine))
		}, "machines", systemID)
	})
}

// QueryPower asks the BMC through MAAS: on, off, unknown, error. MAAS may take
// a minute, and may finish a release on the way.
func (c *client) QueryPower(ctx context.Context, systemID string) (string, error) {
	if err := checkID("query_power", systemID); err != nil {
		return "", err
	}
	state := ""
	err := c.call(ctx, read("query_power"), func(s *session) error {
		ps, err := s.api.Machine.GetPowerState(systemID)
		if err != nil {
			return err
		}
		switch ps.State {
		case "on", "off", "unknown", "error":
			state = ps.State
			return nil
		}
		return errors.New("no known power state")
	})
	return state, err
}

// SetHardwareSync sets the flag by a PUT that MAAS takes but does not document. It installs no
// agent on a machine that is already deployed. A MAAS that ignores it is KindUnsupported.
func (c *client) SetHardwareSync(ctx context.Context, systemID string, on bool) error {
	if err := checkID("set_hardware_sync", systemID); err != nil {
		return err
	}
	return c.call(ctx, write("set_hardware_sync"), func(s *session) error {
		return s.raw("machines", systemID).Put(url.Values{"enable_hw_sync": {strconv.FormatBool(on)}}, func(data []byte) error {
			var now struct {
				On *bool `json:"enable_hw_sync"`
			}
			if err := json.Unmarshal(data, &now); err != nil {
				return err
			}
			if now.On != nil && *now.On != on {
				return &providers.Error{Kind: providers.KindUnsupported, Op: "maas.set_hardware_sync",
					Message: "this MAAS version does not change hardware sync on an existing machine"}
			}
			return nil
		})
	})
}

// MachineToken is the machine's own metadata credential in the form
// consumer:token:secret. KindNotFound also when MAAS gave it none yet.
func (c *client) MachineToken(ctx context.Context, systemID string) (providers.Secret, error) {
	var token providers.Secret
	if err := checkID("machine_token", systemID); err != nil {
		return token, err
	}
	err := c.call(ctx, read("machine_token"), func(s *session) error {
		t, err := s.api.Machine.GetToken(systemID)
		if err != nil {
			return err
		}
		if t.ConsumerKey == "" || t.TokenKey == "" || t.TokenSecret == "" {
			return &providers.Error{Kind: providers.KindNotFound, Op: "maas.machine_token", Message: "MAAS has no token for this machine"}
		}
		token = providers.NewSecret(t.ConsumerKey + ":" + t.TokenKey + ":" + t.TokenSecret)
		return nil
	})
	return token, err
}

// DeleteMachine removes the record; absent is success. It neither powers off
// nor releases: a node that still boots from the network enlists again under a
// new id.
func (c *client) DeleteMachine(ctx context.Context, systemID string) error {
	if err := checkID("delete_machine", systemID); err != nil {
		return err
	}
	err := c.call(ctx, write("delete_machine"), func(s *session) error { return s.api.Machine.Delete(systemID) })
	if providers.IsKind(err, providers.KindNotFound) {
		return nil
	}
	return err
}

// machineOp posts one operation of a machine and reads the machine it answers
// with.
func (c *client) machineOp(ctx context.Context, name, systemID, op string, v url.Values) (providers.MAASMachine, error) {
	var m providers.MAASMachine
	if err := checkID(name, systemID); err != nil {
		return m, err
	}
	err := c.call(ctx, write(name), func(s *session) error {
		return s.post(op, v, func(data []byte) error { return keepMachine(data, systemID, &m) }, "machines", systemID)
	})
	return orNone(m, err)
}

// keepMachine decodes data into m and insists on the machine that was meant.
func keepMachine(data []byte, systemID string, m *providers.MAASMachine) error {
	got, err := decodeMachine(data)
	if err != nil {
		return err
	}
	if systemID != "" && got.SystemID != systemID {
		return errors.New("the answer is about another machine")
	}
	*m = got
	return nil
}

// orNone returns no half-read machine next to an error.
func orNone(m providers.MAASMachine, err error) (providers.MAASMachine, error) {
	if err != nil {
		return providers.MAASMachine{}, err
	}
	return m, nil
}

func bit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

func setNonEmpty(v url.Values, key, value string) {
	if value != "" {
		v.Set(key, value)
	}
}
