"""Rules that crawlers, feed readers and monitors run.

`RULES` has them by name, with the settings of each program as it comes. None of them knows importances, nor a
bandwidth: what a rule uses follows from its settings and from what its fetches find.
"""

from freshopt.simulation.rules.programs import RULES as RULES
from freshopt.simulation.rules.programs import BackOff as BackOff
from freshopt.simulation.rules.programs import FixedInterval as FixedInterval
from freshopt.simulation.rules.programs import Miniflux as Miniflux
from freshopt.simulation.rules.programs import Nutch as Nutch
from freshopt.simulation.rules.programs import StormCrawler as StormCrawler
from freshopt.simulation.rules.programs import rules_of as rules_of
from freshopt.simulation.rules.rule import Rule as Rule
from freshopt.simulation.rules.rule import RuleCrawls as RuleCrawls
from freshopt.simulation.rules.rule import replay_rule as replay_rule
from freshopt.simulation.rules.rule import rule_crawls as rule_crawls
from freshopt.simulation.rules.rule import settling as settling
