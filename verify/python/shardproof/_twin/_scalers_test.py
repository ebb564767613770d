import pytest
import torch

from shardproof._twin import _scalers


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("is_unscaled", [True, False])
@pytest.mark.parametrize(("grad", "divisor"), [(3.0, 1024.0), (float("inf"), None)])
def test_a_fused_optimizer_is_told_what_the_scaler_found(fused, is_unscaled, grad, divisor):
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([parameter], fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.ones(()))
    parameter.grad = torch.full((2,), grad)
    if is_unscaled:
        scaler.unscale_(optimizer)
    seen = []
    optimizer.register_step_pre_hook(lambda own, *_: seen.append(_scalers.divisor_of(own)))
    scaler.step(optimizer)
    if fused:
        assert seen == [divisor and (1.0 if is_unscaled else divisor)]
    else:
        assert seen == ([1.0] if divisor else [])
    assert (parameter == 1).all() == (divisor is None), "a step that is left out changes nothing"
