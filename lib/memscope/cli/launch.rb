# frozen_string_literal: true

require "rbconfig"
require_relative "../setup/facade"

module Memscope
  # Starts another program: `memscope exec`, `memscope report -- COMMAND` and others prepare the environment, and become
  # the program; what is left to do, such as the proof of its allocator, is done inside. No memscope process remains.
  #
  # @api private
  module Launch
    # Why a program cannot start as requested; the message is the reason.
    class Refusal < StandardError; end

    ELF = "\x7FELF".b.freeze
    private_constant :ELF

    # @param command [Array<String>]
    # @return [String, nil] the path of its program, if that is an executable other than the Ruby that runs memscope,
    #   and so runs nothing of memscope itself; nil also for env(1) that keeps RUBYOPT, for a script, whose interpreter
    #   may be any, and for a file that is not found
    def self.stranger(command)
      path = find(command.first)
      return if path.nil? || File.identical?(path, RbConfig.ruby)

      path unless passes_on?(path, command.drop(1)) || File.binread(path, ELF.bytesize) != ELF
    rescue SystemCallError
      nil # it may be executed, and not read
    end

    # As execvp(3) finds a command.
    def self.find(name)
      directories = name.include?("/") ? [""] : ENV.fetch("PATH", "").split(":")
      directories.map { |directory| directory.empty? ? name : File.join(directory, name) }
                 .find { |path| File.file?(path) && File.executable?(path) }
    end

    # Whether it is env(1), and neither sets RUBYOPT nor removes variables.
    def self.passes_on?(path, arguments)
      own = arguments.take_while { |argument| argument.match?(/\A-|=/) }
      File.basename(path) == "env" && own.grep(/\A(?:RUBYOPT=|-[iuS]?\z|-u|--(?!chdir))/).empty?
    end
    private_class_method :find, :passes_on?
  end
end

require_relative "launch/environment"
require_relative "launch/handoff"
