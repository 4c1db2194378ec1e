"""Public names that have no call in `tests.contracts.api_calls`, each with the reason.

They are a record of results, an exception, a protocol or a choice, or other tests cover them with files and
workers: a reason that begins with "test_" is the name of that test file.
"""

from __future__ import annotations

ELSEWHERE: dict[str, frozenset[str]] = {
    "a record of results": frozenset(
        [
            "freshopt.Agreement",
            "freshopt.Certificate",
            "freshopt.Frontier",
            "freshopt.BackTest",
            "freshopt.BandwidthFor",
            "freshopt.LifetimePlan",
            "freshopt.Pipeline",
            "freshopt.Plan",
            "freshopt.Replay",
            "freshopt.Solution",
            "freshopt.Solutions",
            "online.RunHistory",
            "goodness_of_fit.PoissonCheck",
            "freshopt.PlanUncertainty",
            "simulation.Measured",
            "simulation.MissedCosts",
            "simulation.Replay",
            "tools.Exported",
            "pipelines.NodeFreshness",
            "pipelines.PipelineReplay",
            "testing.Instance",
            "testing.KnownOptimum",
            "testing.Recipe",
            "testing.Report",
            "distributed.DistributedPlan",
            "distributed.DistributedSolution",
            "distributed.PartitionedSources",
        ]
    ),
    "an exception": frozenset(
        [
            "freshopt.CertificateError",
            "freshopt.FreshoptError",
            "freshopt.InfeasibleProblemError",
            "freshopt.ObjectiveError",
            "freshopt.SolverRefusedError",
            "freshopt.SourceDataError",
            "freshopt.SourceDataWarning",
        ]
    ),
    "a choice": frozenset(
        [
            "freshopt.Refresh",
            "freshopt.Status",
            "automata.Cost",
            "automata.Feedback",
            "automata.Polling",
            "automata.Update",
        ]
    ),
    "a base class or a protocol": frozenset(
        [
            "freshopt.Objective",
            "online.Learner",
            "simulation.CountingCrawler",
            "simulation.Crawler",
            "simulation.SignallingCrawler",
        ]
    ),
    "no callable": frozenset(["freshopt.__version__"]),
    "the same as another": frozenset(
        [
            "scheduling.Schedule",
            "simulation.World",
            "simulation.replay",
            "logs.ChangeHistory",
            "logs.CrawlLog",
            "logs.read_log",
            "pipelines.Pipeline",
            "pipelines.pipeline",
        ]
    ),
    "test_request_replay": frozenset(["simulation.compare_lifetimes"]),
    "test_lifetimes": frozenset(["tools.CacheControl", "tools.Dns", "tools.Nginx", "tools.Redis"]),
    "test_read_requests": frozenset(["logs.read_requests"]),
    "test_tree": frozenset(["automata.draw", "automata.to_networkx"]),
    "test_poisson_check": frozenset(["goodness_of_fit.interpret", "goodness_of_fit.plot"]),
    "test_signal_quality": frozenset(["noisy_signals.NoisySignals"]),
    "test_formats": frozenset(
        [
            "tools.ChangeDetection",
            "tools.Crontab",
            "tools.ExternalSecrets",
            "tools.Nutch",
            "tools.StormCrawler",
        ]
    ),
    "test_icalendar": frozenset(["tools.write_icalendar"]),
    "test_dbt": frozenset(["tools.Dbt"]),
    "test_dbt_jobs": frozenset(["tools.DbtJobs"]),
    "test_templates": frozenset(["tools.PgCron", "tools.TextTemplate"]),
    "test_read_log": frozenset(["freshopt.read_log", "logs.read_history"]),
    "test_read_crawlers": frozenset(["tools.read_changedetection", "tools.read_nutch"]),
    "test_read_dbt": frozenset(["tools.read_dbt"]),
    "test_git": frozenset(["tools.read_git"]),
    "test_validation": frozenset(["testing.validate"]),
    "test_backend": frozenset(["freshopt.warm"]),
    "test_solving": frozenset(["distributed.plan", "distributed.solve"]),
}
