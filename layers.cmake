# Every folder with C++ in it, ground first: what it is for, and all that it may include. A folder
# depends on ones above it here, so there are no circles; ci/layers.py holds every #include against
# this list. verify/decisions/0022 says why it is cut so.

# ---- What everything stands on; none of it needs LibTorch ----------------------------------------
# Results and errors, checks, strict JSON.
shardproof_module(NAME core FOLDERS src/core DEPENDS nlohmann_json::nlohmann_json fmt::fmt)
# Text for people and for Python: quoted, printable, in Python's notation.
shardproof_module(NAME text FOLDERS src/text DEPENDS fmt::fmt)
# Regular expressions as Python has them.
shardproof_module(NAME pattern FOLDERS src/pattern DEPENDS core pcre2 fmt::fmt)
# Pickles, read as data and written.
shardproof_module(NAME pickle FOLDERS src/pickle DEPENDS core text simdjson::simdjson fmt::fmt)
# The digest of a tensor, the same however it is cut.
shardproof_module(NAME digest ALONE FOLDERS src/digest
  DEPENDS nlohmann_json::nlohmann_json fmt::fmt)
# Arithmetic whose bits are the same everywhere: no contraction, whatever the compiler would gain.
shardproof_module(NAME numeric ALONE FOLDERS src/numeric)
set_source_files_properties(src/numeric/adamw.cc src/numeric/made_gradient.cc PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=off;-fno-math-errno")
# The seam to files, and POSIX's.
shardproof_module(NAME storage FOLDERS src/storage DEPENDS core fmt::fmt)
# The stages that a job comes through, by name.
shardproof_module(NAME stage ALONE FOLDERS src/stage)

# ---- The reference pipeline ----------------------------------------------------------------------
# LibTorch's dtypes by name, its exceptions as errors.
shardproof_module(NAME aten TORCH FOLDERS src/aten DEPENDS core)
# Meshes, placements, boxes: which elements are whose.
shardproof_module(NAME mesh TORCH FOLDERS src/mesh DEPENDS core)
# The other seams: device, communicator, clock, observer, background.
shardproof_module(NAME seam TORCH FOLDERS src/seam DEPENDS core storage stage aten fmt::fmt)
# A model's modules and slots, how a config describes it, and the values that a formula gives it.
shardproof_module(NAME model TORCH FOLDERS src/model
  DEPENDS core pattern numeric aten mesh seam nlohmann_json::nlohmann_json fmt::fmt
  TEST_DEPENDS load shard pipeline)
# Communicators over Gloo and over simulated ranks; who is missing.
shardproof_module(NAME comm TORCH FOLDERS src/comm DEPENDS core aten seam fmt::fmt)
# What needs CUDA, in a library that is loaded only for tensors on a GPU.
shardproof_interface(NAME cuda FOLDERS src/cuda DEPENDS aten seam comm)
# A job, its world, and the table of leaves that carry it out: what every leaf stands on.
shardproof_module(NAME contract TORCH FOLDERS src/contract
  DEPENDS core digest storage mesh seam model)
# Formats of files: their bytes and names, no policy.
shardproof_module(NAME format TORCH FOLDERS src/format
  DEPENDS core text pickle digest storage aten isal nlohmann_json::nlohmann_json fmt::fmt)
# What a save digests and a load verifies.
shardproof_module(NAME manifest TORCH FOLDERS src/manifest
  DEPENDS core digest storage aten model contract nlohmann_json::nlohmann_json fmt::fmt
  TEST_DEPENDS mesh)
# From files into a model's slots, by four strategies.
shardproof_module(NAME load TORCH FOLDERS src/load
  DEPENDS core text pickle digest aten mesh seam model comm contract format manifest fmt::fmt)
# The optimizer and its steps.
shardproof_module(NAME optim TORCH FOLDERS src/optim
  DEPENDS text pickle numeric aten mesh model contract format load fmt::fmt)
# Which part of a slot is which rank's.
shardproof_module(NAME shard TORCH FOLDERS src/shard DEPENDS core contract load)
# From a model into files, committed by one rename.
shardproof_module(NAME checkpoint TORCH FOLDERS src/checkpoint
  DEPENDS core text pickle storage aten mesh model contract format manifest optim
    nlohmann_json::nlohmann_json fmt::fmt
  TEST_DEPENDS seam comm load pipeline)
# The leaves, assembled.
shardproof_module(NAME pipeline TORCH FOLDERS src/pipeline
  DEPENDS model contract format manifest optim load shard checkpoint nlohmann_json::nlohmann_json
    fmt::fmt)

# ---- The verifier: what is judged, and by what; none of it needs LibTorch ------------------------
# Things with an id that register themselves.
shardproof_module(NAME registry FOLDERS verify/registry DEPENDS core fmt::fmt)
# A case: all that a run is asked for.
shardproof_module(NAME case FOLDERS verify/case
  DEPENDS core nlohmann_json::nlohmann_json simdjson::simdjson fmt::fmt)
# Cases drawn, shrunk, and what is in them.
shardproof_module(NAME generate FOLDERS verify/generate
  DEPENDS stage case nlohmann_json::nlohmann_json rapidcheck fmt::fmt)
# What ranks have recorded, and its files.
shardproof_module(NAME evidence FOLDERS verify/evidence
  DEPENDS core digest stage case nlohmann_json::nlohmann_json fmt::fmt)
# Properties of evidence, what they find, and what a run comes to.
shardproof_module(NAME verdict FOLDERS verify/verdict
  DEPENDS core text case evidence nlohmann_json::nlohmann_json fmt::fmt)
# One file a property; each registers itself, so they are linked whole.
shardproof_module(NAME properties OBJECT
  FOLDERS properties/loading properties/sharding properties/checkpoint properties/training
    properties/offload properties/conformance properties/memory properties/fault
  DEPENDS case verdict fmt::fmt)
# What a checkpoint and a model must hold, found out without the pipeline.
shardproof_module(NAME oracle FOLDERS verify/oracle
  DEPENDS core text pattern digest case evidence simdjson::simdjson fmt::fmt)
# Child processes: run, watched, talked to line by line.
shardproof_module(NAME process FOLDERS verify/process DEPENDS core fmt::fmt)
# Checkpoints in every format, in archives and behind URLs too, read without LibTorch.
shardproof_module(NAME formats FOLDERS verify/formats
  DEPENDS core text pickle oracle process simdjson::simdjson isal fmt::fmt)
# Synthetic checkpoints of torch.distributed.checkpoint, in every form that other writers give them.
shardproof_module(NAME dcp_forms FOLDERS verify/dcp_forms
  DEPENDS core case oracle formats fmt::fmt
  TEST_DEPENDS pickle process)
# How the tensors of one checkpoint become those of another: the language of maps, and its views.
shardproof_module(NAME maps FOLDERS verify/maps
  DEPENDS core oracle formats simdjson::simdjson fmt::fmt)
# Quantised weights: which tensors are one, and the numbers that they stand for.
shardproof_module(NAME quantised FOLDERS verify/quantised
  DEPENDS pattern oracle formats maps simdjson::simdjson fmt::fmt)
# One checkpoint: whether it is whole, and sealed.
shardproof_module(NAME audit FOLDERS verify/audit
  DEPENDS core text digest evidence oracle formats maps quantised process
    nlohmann_json::nlohmann_json fmt::fmt)
# Two checkpoints, tensor by tensor.
shardproof_module(NAME compare FOLDERS verify/compare
  DEPENDS core text verdict oracle formats maps quantised audit
    simdjson::simdjson nlohmann_json::nlohmann_json fmt::fmt)

# ---- Processes and disks; none of it needs LibTorch ----------------------------------------------
# System calls of other programs, seen and changed.
shardproof_module(NAME trace FOLDERS verify/trace DEPENDS core fmt::fmt)
# A control group and a network of their own for ranks.
shardproof_module(NAME confine FOLDERS verify/confine DEPENDS core process fmt::fmt)
# Faults under real programs, by libraries that are loaded before the program's own.
shardproof_module(NAME interpose FOLDERS verify/interpose DEPENDS core nlohmann_json::nlohmann_json)
# What a disk may hold after a crash.
shardproof_module(NAME crash_states FOLDERS verify/crash_states
  DEPENDS core storage trace fmt::fmt
  TEST_DEPENDS process rapidcheck)
# Whether a program's saves survive each of these states: the command's work.
shardproof_module(NAME crashtest FOLDERS verify/crashtest
  DEPENDS core text process trace crash_states nlohmann_json::nlohmann_json fmt::fmt)
# What a run has come to, for a terminal, a browser and other programs.
shardproof_module(NAME report FOLDERS verify/report
  DEPENDS core text case evidence verdict process nlohmann_json::nlohmann_json fmt::fmt)
# Known failures, what an earlier run compared, and a verdict for a pipeline's page and Prometheus.
shardproof_module(NAME gate FOLDERS verify/gate
  DEPENDS core text case evidence verdict simdjson::simdjson nlohmann_json::nlohmann_json fmt::fmt)
# What earlier runs left, and which of it may go.
shardproof_module(NAME retention FOLDERS verify/retention
  DEPENDS core case nlohmann_json::nlohmann_json fmt::fmt)
# Scripts and programs that show a finding without the command.
shardproof_module(NAME reproduce FOLDERS verify/reproduce
  DEPENDS core text process report nlohmann_json::nlohmann_json fmt::fmt)

# ---- Runs of the reference and of subjects -------------------------------------------------------
# What a planted bug is; fixtures/bugs has them.
shardproof_module(NAME bug TORCH FOLDERS verify/bug DEPENDS core contract registry)
# One file a planted bug; each registers itself, so they are linked whole.
if(SHARDPROOF_TESTS)
  shardproof_module(NAME bugs TORCH OBJECT FOLDERS fixtures/bugs
    DEPENDS model seam format manifest optim load checkpoint bug fmt::fmt)
endif()
# What a fault is, when it strikes, and how it is told; verify/faults has them.
shardproof_module(NAME fault TORCH FOLDERS verify/fault
  DEPENDS core text stage contract registry case evidence oracle trace fiu fmt::fmt)
# What a run puts around the pipeline's seams.
shardproof_module(NAME decorators TORCH FOLDERS verify/decorators
  DEPENDS storage seam comm trace fmt::fmt
  TEST_DEPENDS process)
# One file a fault; each registers itself, so they are linked whole.
shardproof_module(NAME faults TORCH OBJECT FOLDERS verify/faults
  DEPENDS core text storage stage seam comm shard case oracle formats dcp_forms confine interpose
    fault decorators nlohmann_json::nlohmann_json fmt::fmt)
# From a case to the launches that answer it.
shardproof_module(NAME plan TORCH FOLDERS verify/plan DEPENDS case fault)
# What one rank does in one launch, and what it records.
shardproof_module(NAME rank TORCH FOLDERS verify/rank
  DEPENDS digest aten seam model comm cuda contract optim pipeline case evidence oracle bug fault
    decorators plan fmt::fmt
  TEST_DEPENDS registry)
# Ranks started as processes, simulated or reused, of the reference and of subjects.
shardproof_module(NAME launch TORCH FOLDERS verify/launch
  DEPENDS core text aten seam comm case evidence verdict process trace confine interpose fault
    decorators plan rank nlohmann_json::nlohmann_json fmt::fmt
  TEST_DEPENDS oracle faults)
# A case's run from its plan to its verdict.
shardproof_module(NAME engine TORCH FOLDERS verify/engine
  DEPENDS core text checkpoint case evidence verdict oracle formats dcp_forms maps audit process bug
    fault launch fmt::fmt
  TEST_DEPENDS aten seam model comm load pipeline crash_states decorators)
# Many generated cases; which planted bugs they see.
shardproof_module(NAME campaign TORCH FOLDERS verify/campaign
  DEPENDS core text case generate verdict process bug launch engine nlohmann_json::nlohmann_json
    fmt::fmt)

# ---- The command ---------------------------------------------------------------------------------
# What all subcommands share: how words are parsed, what lies where, how a result is shown.
shardproof_module(NAME cli_common FOLDERS verify/cli/common
  DEPENDS core text digest case evidence verdict oracle formats process report reproduce gate
    CLI11::CLI11 nlohmann_json::nlohmann_json fmt::fmt)
# What needs no LibTorch: files are judged without it.
shardproof_module(NAME file_commands FOLDERS verify/cli/files
  DEPENDS text case verdict oracle formats maps compare audit process crashtest gate retention
    cli_common CLI11::CLI11 nlohmann_json::nlohmann_json fmt::fmt)
# All else.
shardproof_module(NAME cli TORCH FOLDERS verify/cli
  DEPENDS text stage case evidence verdict oracle process bug fault rank launch
    generate engine campaign cli_common nlohmann_json::nlohmann_json fmt::fmt)

if(SHARDPROOF_TESTS)
  # Programs that only tests and measurements need.
  shardproof_interface(NAME benches FOLDERS verify/bench
    DEPENDS digest comm optim load pipeline CLI11::CLI11)
  shardproof_interface(NAME selftests FOLDERS verify/selftest
    DEPENDS comm load pipeline case oracle process bug fault faults decorators rank launch engine
      campaign)
  shardproof_interface(NAME fuzzing FOLDERS verify/fuzz
    DEPENDS core pickle format oracle formats audit)
  shardproof_interface(NAME doubles FOLDERS fixtures/doubles)

  get_property(tests GLOBAL PROPERTY SHARDPROOF_TESTS_OF_src)
  add_custom_target(reference_tests DEPENDS ${tests})
endif()

foreach(module load formats audit)
  if(TARGET ${module}_test)
    target_compile_definitions(${module}_test PRIVATE
                               SHARDPROOF_STORED="${PROJECT_SOURCE_DIR}/fixtures/stored")
  endif()
endforeach()
if(TARGET case_test)
  target_compile_definitions(case_test PRIVATE
    SHARDPROOF_CASE_SCHEMA="${PROJECT_SOURCE_DIR}/fixtures/schema/case.schema.json")
endif()
